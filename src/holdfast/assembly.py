"""Puts the house together. The only file that names concrete adapters."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
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
from holdfast.adapters.event_log.opening import open_event_log
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.examination import examine_providers
from holdfast.adapters.models.handles import ProviderSettings
from holdfast.adapters.models.inquiry import Inquiry
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.adapters.sandbox import confinement, levels
from holdfast.adapters.sandbox import examination as sandbox_examination
from holdfast.adapters.sandbox.environments import Environments
from holdfast.adapters.sandbox.levels import Isolation
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.store.cipher import FernetCipher, cipher_of_home
from holdfast.adapters.store.examination import examine_home, examine_store
from holdfast.adapters.store.opening import open_store
from holdfast.adapters.telemetry.opening import open_telemetry
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.config import Settings
from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID
from holdfast.engine.callbacks import CallbackDelivery
from holdfast.engine.timekeeper import Timekeeper
from holdfast.engine.worker import Worker
from holdfast.errors import CannotStart
from holdfast.http.app import HttpSettings, build_app
from holdfast.http.doorkeeper import Doorkeeper
from holdfast.http.letta_v1.to_wire.callbacks import callback_body
from holdfast.ports.finding import Finding
from holdfast.ports.house import House
from holdfast.ports.telemetry import Requests
from holdfast.usecases import approvals, tools

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otel import OtelTelemetry

log = logging.getLogger(__name__)

# How long answers that are under way may take to reach their clients once no run is under way any more.
STOP_SECONDS = 5

# Allocations between two collections of the youngest objects. A turn makes many that live as long as it does;
# Python's 700 would look at them over and over.
GC_THRESHOLD = 20_000

_EVERYBODY = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)


def serve(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serve until told to stop (SIGINT, SIGTERM). ``on_ready`` gets the address once it answers.

    OSError if the address cannot be had, BackendError if the store cannot.
    """
    logs.set_up(settings.log_level, settings.log_format, settings.secrets)
    confinement.hide_memory()
    with (
        _listening(settings) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
    ):
        loop.run(_serve(settings, listener, on_ready))


async def _serve(
    settings: Settings, listener: socket.socket, on_ready: Callable[[str], None]
) -> None:
    async with working_house(settings) as shift:
        app = build_app(
            shift.house,
            HttpSettings(
                password=settings.password,
                max_body_bytes=settings.max_body_bytes,
                loopback_only_hosts=not settings.insecure,
                telemetry=shift.telemetry,
                metrics=settings.metrics != "off",
                open_metrics=settings.metrics == "open",
            ),
        )
        doorkeeper = Doorkeeper(app)
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
            doorkeeper.turn_messages_away(settings.drain_seconds)
            await shift.end(settings.drain_seconds)

        server = _Server(
            config,
            on_ready=lambda: on_ready(_address(listener)),
            on_stop=on_stop,
            on_hurry=shift.working.cancel,
        )
        await server.serve(sockets=[listener])


@dataclass(frozen=True, slots=True)
class Shift:
    """The house and who works in it."""

    house: House
    worker: Worker
    working: asyncio.Task[None]
    keeping_time: asyncio.Task[None]
    telemetry: Requests | None

    async def end(self, drain_seconds: float) -> None:
        """Let runs end for so long, leave the others to the next start, and let all readers go: by then they
        have read whatever this process had to say. A cancel of ``working`` cuts this short."""
        self.keeping_time.cancel()
        self.worker.drain(drain_seconds)
        await asyncio.wait([self.working])
        self.house.events.hang_up()


@asynccontextmanager
async def working_house(settings: Settings) -> AsyncIterator[Shift]:
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
        house, model = await _furnished(settings, stack, telemetry)
        await tools.add_builtin(house, _EVERYBODY)
        worker = Worker(house)
        if telemetry is not None:
            telemetry.look_up(live=lambda: worker.live, waiting=house.dispatch.waiting)
        await worker.look_back()
        async with asyncio.TaskGroup() as side_tasks:
            working = side_tasks.create_task(worker.run(), name="worker")
            timekeeper = Timekeeper(house, approvals.expire)
            keeping_time = side_tasks.create_task(timekeeper.run(), name="timekeeper")
            telling = side_tasks.create_task(
                CallbackDelivery(house, callback_body, secret=settings.callback_secret).run(),
                name="callbacks",
            )
            warming = side_tasks.create_task(_settle_in(model), name="settle-in")
            try:
                yield Shift(house, worker, working, keeping_time, telemetry)
            finally:
                for task in (working, keeping_time, telling, warming):
                    task.cancel()


async def _settle_in(model: ModelRouter) -> None:
    """Load what the first turn needs, after the server answers; what is loaded then stays for good, so the
    garbage collector need not look at it again."""
    await model.warm()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


async def _furnished(
    settings: Settings, stack: AsyncExitStack, telemetry: "OtelTelemetry | None"
) -> tuple[House, ModelRouter]:
    clock = SystemClock()
    cipher = (
        FernetCipher(settings.secret_key) if settings.secret_key else cipher_of_home(settings.home)
    )
    store = await open_store(settings.database_url, cipher=cipher)
    stack.push_async_callback(store.close)
    sandbox = await _sandbox(settings, stack)
    providers = _providers(settings)
    inquiry = Inquiry()
    model = ModelRouter(providers, inquiry=inquiry)
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
    house = House(
        store=store,
        events=events,
        dispatch=InProcessDispatch(bell),
        bell=bell,
        model=model,
        catalogue=ProviderCatalogue(providers, default=settings.default_model, inquiry=inquiry),
        toolbox=toolbox,
        outgoing=GuardedOutgoing(settings.allowed_private_hosts),
        prices=GenaiPrices(charging, clock),
        clock=clock,
        ids=RandomIds(),
        limits=settings.limits,
    )
    if telemetry is not None:
        house = _watched(house, telemetry)
    toolbox.move_in(house)
    return house, model


async def examine(settings: Settings, *, check_providers: bool) -> list[Finding]:
    """How a server with these settings would find things here. Nothing is changed."""
    isolation = _isolation(settings)
    sandbox = partial(
        sandbox_examination.examine,
        isolation,
        network=settings.sandbox_network,
        home=settings.home,
    )
    return [
        *examine_home(settings.home),
        await examine_store(settings.database_url),
        *await examine_providers(_providers(settings), ask=check_providers),
        *await asyncio.to_thread(lambda: list(sandbox())),
    ]


def _providers(settings: Settings) -> ProviderSettings:
    return ProviderSettings(
        **settings.named(fields(ProviderSettings)), silence_seconds=settings.model_silence_seconds
    )


def _isolation(settings: Settings) -> Isolation | None:
    if settings.sandbox != "isolated":
        return None
    return Isolation(network=settings.sandbox_network, hidden=(str(settings.home),))


async def _sandbox(settings: Settings, stack: AsyncExitStack) -> SubprocessSandbox:
    """CannotStart if tools are to be isolated and cannot be: they never run with less than was asked for."""
    isolation = _isolation(settings)
    if isolation is not None and (
        reason := await asyncio.to_thread(levels.isolation_refused, isolation)
    ):
        raise CannotStart(reason)
    sandbox = SubprocessSandbox(
        limits=settings.sandbox_limits,
        isolation=isolation,
        environments=Environments(
            settings.home / "environments", install_seconds=settings.tool_install_seconds
        ),
        hidden=settings.own_files,
    )
    stack.push_async_callback(sandbox.close)
    return sandbox


def _watched(house: House, telemetry: "OtelTelemetry") -> House:
    return replace(
        house,
        model=telemetry.model(house.model),
        toolbox=telemetry.toolbox(house.toolbox),
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
        on_hurry: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_hurry = on_hurry

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
            self._on_hurry()
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


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=2048)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ip_address(host).version == 6 else f"http://{host}:{port}"
