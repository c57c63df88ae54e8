"""Builds the services from the settings and runs the server. The only module that chooses adapters."""

import asyncio
import gc
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from starlette.types import ASGIApp

from holdfast import logs
from holdfast.adapters.bell.doctor_checks import check_notifications
from holdfast.adapters.bell.factory import open_bell
from holdfast.adapters.clock import RandomIds, SystemClock
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.event_log.factory import open_event_log
from holdfast.adapters.lease.factory import open_lease
from holdfast.adapters.models import doctor_checks as model_checks
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.adapters.sandbox import confinement
from holdfast.adapters.sandbox.doctor_checks import (
    check_sandbox,
    check_tool_access,
    check_tool_requests,
)
from holdfast.adapters.sandbox.environments import ENVIRONMENTS, Environments
from holdfast.adapters.sandbox.isolation import (
    Isolation,
    find_visible_names,
    isolation_problem,
)
from holdfast.adapters.sandbox.leftovers import ToolRecord, sweep_leftovers
from holdfast.adapters.sandbox.plain_level import (
    describe_root_risk,
    find_tool_user,
    writable_problem,
)
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_connections import ProcToolConnections
from holdfast.adapters.store.cipher import FernetCipher, load_home_cipher
from holdfast.adapters.store.doctor_checks import (
    check_database_files,
    check_home,
    check_servers,
    check_store,
)
from holdfast.adapters.store.factory import open_store, sqlite_path
from holdfast.adapters.store.file_permissions import sqlite_files
from holdfast.adapters.telemetry.factory import open_telemetry
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.config import Settings
from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID
from holdfast.core.servers import Role, ServerLoad
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.callbacks import CallbackDelivery
from holdfast.engine.deployment_tasks import DeploymentTasks, Takeover
from holdfast.engine.queue_metrics import QueueMetrics
from holdfast.engine.worker import Worker
from holdfast.errors import CannotStart, StoreUnavailable
from holdfast.http.app import WIRES, HttpSettings, build_app
from holdfast.http.drain_gate import DrainGate
from holdfast.http.letta_v1.to_wire.callbacks import callback_body
from holdfast.http.open_files import fit_to_open_files
from holdfast.http.pending_requests import PendingRequests
from holdfast.http.request_metrics import METRICS_PATH
from holdfast.http.request_pace import RequestPace
from holdfast.http.server import HttpServer, open_listener
from holdfast.http.worker_gate import WorkerGate
from holdfast.ports.bell import Bell
from holdfast.ports.doctor_check import Check
from holdfast.ports.lease import Lease
from holdfast.ports.services import Services
from holdfast.ports.store import Store
from holdfast.ports.telemetry import NO_TELEMETRY, RequestTelemetry
from holdfast.ports.tool_connections import ToolConnections
from holdfast.usecases import approvals, tools

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otel import OtelTelemetry

# Allocations between two collections of the youngest objects. A turn allocates many that live until its end;
# with Python's default of 700 the collector would visit them again and again.
GC_THRESHOLD = 20_000

log = logging.getLogger(__name__)

_DEFAULT_ACTOR = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)


def serve(
    settings: Settings, on_ready: Callable[[str], None], listener: socket.socket | None = None
) -> None:
    """Serve until SIGINT or SIGTERM. ``on_ready`` gets the URL once the server answers. A server with a ``listener``
    shares it with others, and has a supervisor.

    Raises OSError if the address is not available, BackendError if the store is not.
    """
    prepare_process(settings)
    limits, backlog = fit_to_open_files(settings.connection_limits)
    pending = PendingRequests(limits, time.monotonic, settings.trusted_proxies)
    with (
        listener or open_socket(settings) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
    ):
        loop.run(
            _serve(settings, listening, backlog, pending, on_ready, supervised=listener is not None)
        )


def prepare_process(settings: Settings) -> None:
    """What a process that has read the settings does first."""
    logs.set_up(settings.log_level, settings.log_format, settings.secrets, (StoreUnavailable,))
    confinement.hide_memory()


def load_libraries(settings: Settings) -> None:
    """Load what a server loads after its start. Processes that are forked from this one share it, and start sooner."""

    async def load() -> None:
        model = ModelRouter(_provider_settings(settings))
        await _warm_up(model)
        await model.aclose()

    asyncio.run(load())


def open_socket(settings: Settings) -> socket.socket:
    """The listening socket. Raises OSError if the address is not available."""
    _, backlog = fit_to_open_files(settings.connection_limits)
    return open_listener(settings.host, settings.port, backlog)


async def _serve(
    settings: Settings,
    listener: socket.socket,
    backlog: int,
    pending: PendingRequests,
    on_ready: Callable[[str], None],
    *,
    supervised: bool,
) -> None:
    async with running_server(settings) as running:
        gate = DrainGate(_build_app(settings, running), WIRES)

        async def on_stop() -> None:
            gate.refuse_messages(settings.drain_seconds)
            await running.stop(settings.drain_seconds)

        server = HttpServer(
            gate,
            pending=pending,
            pace=RequestPace(WIRES.open_paths),
            backlog=backlog,
            on_ready=on_ready,
            on_stop=on_stop,
            on_second_signal=running.worker_task.cancel,
            supervised=supervised,
        )
        await server.serve(sockets=[listener])


def _build_app(settings: Settings, running: "RunningServer") -> ASGIApp:
    app = build_app(running.services, _http_settings(settings, running))
    if settings.role is Role.WORKER:
        return WorkerGate(app, WIRES, WIRES.open_paths | {METRICS_PATH})
    return app


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The services and the background tasks that use them. HTTP is not part of it."""

    services: Services
    worker: Worker
    worker_task: asyncio.Task[None]
    deployment_task: asyncio.Task[None]
    telemetry: RequestTelemetry | None
    tool_connections: ToolConnections

    async def stop(self, drain_seconds: float) -> None:
        """Wait up to ``drain_seconds`` for runs to end; other servers, or the next start, resume the others. Then end all
        streams, whose readers have all events of this process by then. Cancelling ``worker_task`` cuts the wait short."""
        self.deployment_task.cancel()
        self.worker.drain(drain_seconds)
        await asyncio.wait([self.worker_task])
        self.services.events.disconnect_readers()


@asynccontextmanager
async def running_server(settings: Settings) -> AsyncIterator[RunningServer]:
    """Build the services and run the background tasks; on leaving, stop the tasks and close everything."""
    async with AsyncExitStack() as stack:
        # Before the task group, so that an error for the operator is not wrapped in an ExceptionGroup.
        telemetry = _open_telemetry(settings, stack)
        services, model, sandbox, load = await _build_services(settings, stack, telemetry)
        tool_connections = ProcToolConnections(
            sandbox.processes,
            sandbox.tool_uids,
            is_alone=sqlite_path(settings.database_url) is not None,
        )
        stack.callback(tool_connections.close)
        # Before anything is written: from here on this server has the time of the database.
        await services.lease.register()
        await tools.add_builtin(services, _DEFAULT_ACTOR)
        worker = Worker(services)
        if telemetry is not None:
            telemetry.observe_runs(live=lambda: worker.live_count)
            telemetry.observe_queue()
            telemetry.observe_tasks(asyncio.get_running_loop())
        load.worker = worker
        async with asyncio.TaskGroup() as group:
            worker_task = group.create_task(worker.run(), name="worker")
            deployment_task = group.create_task(
                _deployment_tasks(settings, services).run(), name="deployment"
            )
            side_tasks = [group.create_task(_warm_up(model), name="warm-up")]
            if telemetry is not None:
                side_tasks.append(group.create_task(QueueMetrics(services).run(), name="queue"))
            try:
                yield RunningServer(
                    services, worker, worker_task, deployment_task, telemetry, tool_connections
                )
            finally:
                for task in (worker_task, deployment_task, *side_tasks):
                    task.cancel()


class _Load:
    """What this server says about itself with its heartbeats, which begin before there is a worker."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.worker: Worker | None = None

    def read(self) -> ServerLoad:
        worker = self.worker
        return ServerLoad(
            live_runs=worker.live_count if worker else 0,
            is_notified=self._bell.is_connected,
            is_draining=worker is not None and worker.is_draining,
        )


def _deployment_tasks(settings: Settings, services: Services) -> DeploymentTasks:
    expiry = ApprovalExpiry(services, approvals.expire)
    callbacks = CallbackDelivery(services, callback_body, secret=settings.callback_secret)
    return DeploymentTasks(services, [expiry.run, callbacks.run, Takeover(services).run])


async def _warm_up(model: ModelRouter) -> None:
    """Load what the first turn needs while the server already answers. What is loaded then stays in memory for good,
    so the garbage collector need not visit it again. What cannot be loaded now is loaded when it is needed."""
    try:
        await model.warm_up()
    except Exception:
        log.exception("warm_up.failed")
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


async def _build_services(
    settings: Settings, stack: AsyncExitStack, telemetry: "OtelTelemetry | None"
) -> tuple[Services, ModelRouter, SubprocessSandbox, _Load]:
    """The services, each of which ``stack`` closes at its end; the model without telemetry; the sandbox; and what the
    heartbeats tell."""
    clock = SystemClock()
    store = await _open_store(settings, stack)
    sandbox = await _open_sandbox(settings, stack)
    providers = _provider_settings(settings)
    discovery = ModelDiscovery()
    model = ModelRouter(providers, discovery=discovery)
    stack.push_async_callback(model.aclose)
    bell, lease, load = await _join_deployment(settings, stack, store, clock)
    events = open_event_log(store, bell, settings.redis_url)
    stack.push_async_callback(events.aclose)
    toolbox = ToolRouter(sandbox=sandbox, timeout_seconds=settings.tool_timeout_seconds)
    services = Services(
        store=store,
        events=events,
        dispatch=QueueDispatch(
            store,
            bell,
            lease,
            telemetry or NO_TELEMETRY,
            max_runs=0 if settings.role is Role.API else settings.limits.max_runs,
        ),
        bell=bell,
        lease=lease,
        model=model,
        catalogue=ProviderCatalogue(providers, default=settings.default_model, discovery=discovery),
        toolbox=toolbox,
        outgoing=GuardedOutgoing(settings.allowed_private_hosts),
        prices=GenaiPrices(_priced_providers(providers), clock),
        clock=clock,
        ids=RandomIds(),
        limits=settings.limits,
    )
    if telemetry is not None:
        services = _with_telemetry(services, telemetry)
    toolbox.bind(services)
    return services, model, sandbox, load


async def _open_store(settings: Settings, stack: AsyncExitStack) -> Store:
    store = await open_store(
        settings.database_url,
        cipher=_cipher(settings),
        home=settings.home,
        write_seconds=settings.write_seconds,
        survive_power_cut=settings.durability == "full",
    )
    stack.push_async_callback(store.close)
    return store


async def _join_deployment(
    settings: Settings, stack: AsyncExitStack, store: Store, clock: SystemClock
) -> tuple[Bell, Lease, _Load]:
    """What connects this server with the others: the bell, the lease, and what its heartbeats tell."""
    bell = await open_bell(
        settings.database_url,
        listen_url=settings.listen_url,
        has_peers=lambda: lease.has_peers,
    )
    stack.push_async_callback(bell.aclose)
    load = _Load(bell)
    lease = open_lease(
        store,
        settings.database_url,
        role=settings.role,
        max_runs=settings.limits.max_runs,
        lease_seconds=settings.lease_seconds,
        read_load=load.read,
        note_time=clock.compare,
    )
    stack.push_async_callback(lease.aclose)
    return bell, lease, load


def _cipher(settings: Settings) -> FernetCipher:
    if settings.secret_key:
        return FernetCipher(settings.secret_key)
    return load_home_cipher(settings.home)


async def _open_sandbox(settings: Settings, stack: AsyncExitStack) -> SubprocessSandbox:
    """Raises CannotStart if the settings ask for isolation and it is not possible: tools never run with less."""
    isolation = _isolation(settings)
    private = _private_paths(settings)
    problem = writable_problem(settings.sandbox_writable, private)
    if problem is None and isolation is not None:
        problem = await asyncio.to_thread(isolation_problem, isolation)
    if problem is not None:
        raise CannotStart(problem)
    user = find_tool_user(settings.sandbox_user)
    risk = describe_root_risk(settings.sandbox_user, user, settings.home)
    if isolation is None and risk is not None:
        log.warning("sandbox.plain_as_root", extra={"advice": risk})
    records = settings.home / "tool-processes"
    sandbox = SubprocessSandbox(
        limits=settings.sandbox_limits,
        isolation=isolation,
        environments=Environments(
            settings.home / ENVIRONMENTS, install_seconds=settings.tool_install_seconds
        ),
        hidden=private,
        writable=settings.sandbox_writable,
        user=user,
        record=ToolRecord(records),
    )
    stack.push_async_callback(sandbox.close)
    if await asyncio.to_thread(sweep_leftovers, records):
        sandbox.processes.report_lost()
    return sandbox


def _private_paths(settings: Settings) -> tuple[Path, ...]:
    """What only the server may read: the home, and the files of a database that is kept elsewhere."""
    path = sqlite_path(settings.database_url)
    if path is None:
        return (settings.home,)
    # SQLite names its log after the file that a link leads to.
    files = (*sqlite_files(path.absolute()), *sqlite_files(path.resolve()))
    elsewhere = (file for file in files if not file.is_relative_to(settings.home))
    return (settings.home, *dict.fromkeys(elsewhere))


def _isolation(settings: Settings) -> Isolation | None:
    if settings.sandbox != "isolated":
        return None
    home, *files = _private_paths(settings)
    return Isolation(
        network=settings.sandbox_network,
        hidden=(str(home), *find_visible_names([home, *(file.parent for file in files)])),
        writable=tuple(map(str, settings.sandbox_writable)),
    )


def _provider_settings(settings: Settings) -> ProviderSettings:
    return ProviderSettings(
        settings.providers,
        allowed_model_endpoints=settings.allowed_model_endpoints,
        silence_seconds=settings.model_silence_seconds,
    )


def _priced_providers(providers: ProviderSettings) -> dict[str, str | None]:
    """The base URL of each provider that charges for its models: a local one does not."""
    return {
        name: account.base_url
        for name, account in providers.accounts.items()
        if not account.is_loopback
    }


def _open_telemetry(settings: Settings, stack: AsyncExitStack) -> "OtelTelemetry | None":
    telemetry = open_telemetry(
        settings.otlp_endpoint,
        metrics=settings.metrics != "off",
        with_content=settings.telemetry_content,
    )
    if telemetry is not None:
        stack.push_async_callback(telemetry.aclose)
    return telemetry


def _with_telemetry(services: Services, telemetry: "OtelTelemetry") -> Services:
    return replace(
        services,
        model=telemetry.instrument_model(services.model),
        toolbox=telemetry.instrument_toolbox(services.toolbox),
        telemetry=telemetry,
    )


def _http_settings(settings: Settings, running: RunningServer) -> HttpSettings:
    return HttpSettings(
        password=settings.password,
        max_body_bytes=settings.max_body_bytes,
        loopback_only_hosts=not settings.insecure,
        telemetry=running.telemetry,
        tool_connections=running.tool_connections,
        trusted_proxies=settings.trusted_proxies,
        metrics=settings.metrics != "off",
        open_metrics=settings.metrics == "open",
    )


async def run_doctor_checks(settings: Settings, *, check_providers: bool) -> list[Check]:
    """Whether a server with these settings would work here. Changes nothing."""

    def sandbox_checks() -> list[Check]:
        return [
            *check_sandbox(
                _isolation(settings), network=settings.sandbox_network, home=settings.home
            ),
            *check_tool_access(
                user=settings.sandbox_user,
                writable=settings.sandbox_writable,
                private=_private_paths(settings),
                home=settings.home,
                is_plain=settings.sandbox == "plain",
            ),
            check_tool_requests(has_password=bool(settings.password)),
        ]

    return [
        *check_home(settings.home),
        await check_store(settings.database_url, home=settings.home),
        *check_database_files(settings.database_url),
        *await check_notifications(settings.database_url, listen_url=settings.listen_url),
        *await check_servers(settings.database_url),
        *await model_checks.check_providers(_provider_settings(settings), ask=check_providers),
        *await asyncio.to_thread(sandbox_checks),
    ]
