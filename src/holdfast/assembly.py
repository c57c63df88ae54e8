"""Puts the house together. The only file that names concrete adapters."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from holdfast import logs
from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.clock import RandomIds, SystemClock
from holdfast.adapters.dispatch.in_process import InProcessDispatch
from holdfast.adapters.event_log.factory import open_event_log
from holdfast.adapters.models import doctor_checks as model_checks
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.adapters.sandbox import confinement
from holdfast.adapters.sandbox import doctor_checks as sandbox_examination
from holdfast.adapters.sandbox.environments import Environments
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.store.cipher import FernetCipher, load_home_cipher
from holdfast.adapters.store.doctor_checks import check_home, check_store
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.telemetry.opening import open_telemetry
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.config import Settings
from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.callbacks import CallbackDelivery
from holdfast.engine.worker import Worker
from holdfast.errors import CannotStart
from holdfast.http.app import HttpSettings, build_app
from holdfast.http.drain_gate import DrainGate
from holdfast.http.letta_v1.to_wire.callbacks import callback_body
from holdfast.ports.doctor_check import Check
from holdfast.ports.services import Services
from holdfast.ports.telemetry import RequestTelemetry
from holdfast.usecases import approvals, tools

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otel import OtelTelemetry

log = logging.getLogger(__name__)

# How long answers that are under way may take to reach their clients once no run is under way any more.
STOP_SECONDS = 5

# Allocations between two collections of the youngest objects. A turn makes many that live as long as it does;
# Python's 700 would look at them over and over.
GC_THRESHOLD = 20_000

_DEFAULT_ACTOR = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)


def serve(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serve until told to stop (SIGINT, SIGTERM). ``on_ready`` gets the address once it answers.

    OSError if the address cannot be had, BackendError if the store cannot.
    """
    logs.set_up(settings.log_level, settings.log_format, settings.secrets)
    confinement.hide_memory()
    with (
        _open_listener(settings) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
    ):
        loop.run(_serve(settings, listener, on_ready))


async def _serve(
    settings: Settings, listener: socket.socket, on_ready: Callable[[str], None]
) -> None:
    async with running_server(settings) as shift:
        app = build_app(
            shift.services,
            HttpSettings(
                password=settings.password,
                max_body_bytes=settings.max_body_bytes,
                loopback_only_hosts=not settings.insecure,
                telemetry=shift.telemetry,
                metrics=settings.metrics != "off",
                open_metrics=settings.metrics == "open",
            ),
        )
        doorkeeper = DrainGate(app)
        config = uvicorn.Config(
            doorkeeper,
            lifespan="off",
            # Nobody speaks WebSocket here, and what would is large.
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )

        async def on_stop() -> None:
            doorkeeper.refuse_messages(settings.drain_seconds)
            await shift.stop(settings.drain_seconds)

        server = _Server(
            config,
            on_ready=lambda: on_ready(_listener_url(listener)),
            on_stop=on_stop,
            on_second_signal=shift.worker_task.cancel,
        )
        await server.serve(sockets=[listener])


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The house and who works in it."""

    services: Services
    worker: Worker
    worker_task: asyncio.Task[None]
    approval_expiry_task: asyncio.Task[None]
    telemetry: RequestTelemetry | None

    async def stop(self, drain_seconds: float) -> None:
        """Let runs end for so long, leave the others to the next start, and let all readers go: by then they
        have read whatever this process had to say. A cancel of ``working`` cuts this short."""
        self.approval_expiry_task.cancel()
        self.worker.drain(drain_seconds)
        await asyncio.wait([self.worker_task])
        self.services.events.disconnect_readers()


@asynccontextmanager
async def running_server(settings: Settings) -> AsyncIterator[RunningServer]:
    """The house with its worker at work; everything is given back at the end."""
    async with AsyncExitStack() as stack:
        # Before the group: what goes wrong here is for the operator, bare and not in an ExceptionGroup.
        telemetry = open_telemetry(
            settings.otlp_endpoint,
            metrics=settings.metrics != "off",
            with_content=settings.telemetry_content,
        )
        if telemetry is not None:
            stack.push_async_callback(telemetry.aclose)
        services, model = await _build_services(settings, stack, telemetry)
        await tools.add_builtin(services, _DEFAULT_ACTOR)
        worker = Worker(services)
        if telemetry is not None:
            telemetry.observe_runs(
                live=lambda: worker.live_count, waiting=services.dispatch.count_waiting
            )
        await worker.requeue_unfinished()
        async with asyncio.TaskGroup() as side_tasks:
            working = side_tasks.create_task(worker.run(), name="worker")
            timekeeper = ApprovalExpiry(services, approvals.expire)
            keeping_time = side_tasks.create_task(timekeeper.run(), name="timekeeper")
            event_writer = side_tasks.create_task(
                CallbackDelivery(services, callback_body, secret=settings.callback_secret).run(),
                name="callbacks",
            )
            warming = side_tasks.create_task(_warm_up(model), name="settle-in")
            try:
                yield RunningServer(services, worker, working, keeping_time, telemetry)
            finally:
                for task in (working, keeping_time, event_writer, warming):
                    task.cancel()


async def _warm_up(model: ModelRouter) -> None:
    """Load what the first turn needs, after the server answers; what is loaded then stays for good, so the
    garbage collector need not look at it again."""
    await model.warm_up()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


async def _build_services(
    settings: Settings, stack: AsyncExitStack, telemetry: "OtelTelemetry | None"
) -> tuple[Services, ModelRouter]:
    clock = SystemClock()
    cipher = (
        FernetCipher(settings.secret_key)
        if settings.secret_key
        else load_home_cipher(settings.home)
    )
    store = await open_store(settings.database_url, cipher=cipher)
    stack.push_async_callback(store.close)
    sandbox = await _open_sandbox(settings, stack)
    providers = _provider_settings(settings)
    inquiry = ModelDiscovery()
    model = ModelRouter(providers, discovery=inquiry)
    stack.push_async_callback(model.aclose)
    events = open_event_log(store, settings.redis_url)
    stack.push_async_callback(events.aclose)
    bell = LocalBell()
    toolbox = ToolRouter(sandbox=sandbox, timeout_seconds=settings.tool_timeout_seconds)
    charging = {
        name: account.base_url
        for name, account in providers.accounts.items()
        if not account.is_loopback
    }
    services = Services(
        store=store,
        events=events,
        dispatch=InProcessDispatch(bell),
        bell=bell,
        model=model,
        catalogue=ProviderCatalogue(providers, default=settings.default_model, discovery=inquiry),
        toolbox=toolbox,
        outgoing=GuardedOutgoing(settings.allowed_private_hosts),
        prices=GenaiPrices(charging, clock),
        clock=clock,
        ids=RandomIds(),
        limits=settings.limits,
    )
    if telemetry is not None:
        services = _with_telemetry(services, telemetry)
    toolbox.bind(services)
    return services, model


async def run_doctor_checks(settings: Settings, *, check_providers: bool) -> list[Check]:
    """How a server with these settings would find things here. Nothing is changed."""
    isolation = _isolation(settings)
    sandbox = partial(
        sandbox_examination.check_sandbox,
        isolation,
        network=settings.sandbox_network,
        home=settings.home,
    )
    return [
        *check_home(settings.home),
        await check_store(settings.database_url),
        *await model_checks.check_providers(_provider_settings(settings), ask=check_providers),
        *await asyncio.to_thread(lambda: list(sandbox())),
    ]


def _provider_settings(settings: Settings) -> ProviderSettings:
    return ProviderSettings(
        settings.providers,
        allowed_model_endpoints=settings.allowed_model_endpoints,
        silence_seconds=settings.model_silence_seconds,
    )


def _isolation(settings: Settings) -> Isolation | None:
    if settings.sandbox != "isolated":
        return None
    return Isolation(network=settings.sandbox_network, hidden=(str(settings.home),))


async def _open_sandbox(settings: Settings, stack: AsyncExitStack) -> SubprocessSandbox:
    """CannotStart if tools are to be isolated and cannot be: they never run with less than was asked for."""
    isolation = _isolation(settings)
    if isolation is not None and (reason := await asyncio.to_thread(isolation_problem, isolation)):
        raise CannotStart(reason)
    sandbox = SubprocessSandbox(
        limits=settings.sandbox_limits,
        isolation=isolation,
        environments=Environments(
            settings.home / "environments", install_seconds=settings.tool_install_seconds
        ),
        hidden=settings.private_paths,
    )
    stack.push_async_callback(sandbox.close)
    return sandbox


def _with_telemetry(services: Services, telemetry: "OtelTelemetry") -> Services:
    return replace(
        services,
        model=telemetry.instrument_model(services.model),
        toolbox=telemetry.instrument_toolbox(services.toolbox),
        telemetry=telemetry,
    )


class _Server(uvicorn.Server):
    """Uvicorn, but it says when it answers, waits for the runs before it closes the door, hurries at any
    second signal, and ends by returning so that the house is closed."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
        on_second_signal: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_second_signal = on_second_signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The door is still open: a run that is under way can be read, and cancelled, until it ends.
        await self._on_stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del sig, frame
        if self.should_exit:
            self.force_exit = True
            self._on_second_signal()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        watched = (signal.SIGINT, signal.SIGTERM)
        for number in watched:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in watched:
            loop.remove_signal_handler(number)


def _open_listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=2048)


def _listener_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ip_address(host).version == 6 else f"http://{host}:{port}"
