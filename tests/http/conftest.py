"""The whole application over a real SQLite store. Only the model and the toolbox are stand-ins."""

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from tests.doubles.catalogue import FixedCatalogue
from tests.doubles.model import ScriptedModel
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.blank_store import create_blank_store
from tests.support.http_app import use_app
from tests.support.servers import make_server

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.clock import RandomIds, SystemClock
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.tools import ToolKind
from holdfast.http.app import HttpSettings, build_app
from holdfast.ports.services import Services
from holdfast.ports.telemetry import NO_TELEMETRY
from holdfast.ports.toolbox import BuiltinSpec

ADDRESS = "http://localhost:8283"


def _builtin(name: str, kind: ToolKind, *, parallel: bool = False) -> BuiltinSpec:
    return BuiltinSpec(
        name=name,
        description=f"The {name} tool.",
        parameters={"type": "object", "properties": {}, "required": []},
        kind=kind,
        parallel=parallel,
    )


BUILTIN = (
    _builtin("conversation_search", ToolKind.CORE, parallel=True),
    _builtin("memory_insert", ToolKind.SLEEPTIME),
    _builtin("memory_replace", ToolKind.SLEEPTIME),
)


@asynccontextmanager
async def _open_services(home: Path) -> AsyncIterator[Services]:
    path = create_blank_store(home / "holdfast.db")
    store = await SqliteStore.open(path, cipher=FernetCipher("test"))
    bell = LocalBell()
    lease = ExclusiveLease(store, make_server())
    yield Services(
        store=store,
        events=SqlEventLog(store, bell),
        dispatch=QueueDispatch(store, bell, lease, NO_TELEMETRY, max_runs=1_000),
        bell=bell,
        lease=lease,
        model=ScriptedModel(otherwise=None),
        catalogue=FixedCatalogue(),
        toolbox=ScriptedToolbox(builtin=BUILTIN),
        outgoing=GuardedOutgoing(AllowedAddresses()),
        prices=GenaiPrices({}, SystemClock()),
        clock=SystemClock(),
        ids=RandomIds(),
    )
    await store.close()


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    async with _open_services(tmp_path) as services:
        yield services


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same application behind a real server, for clients that bring their own HTTP."""
    home = tmp_path_factory.mktemp("home")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _open_services(home) as services:
            app.state.services = services
            yield

    app = build_app(None, HttpSettings(), lifespan=lifespan)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        # The socket listens already: connections wait there until the server is up.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=30)


@pytest.fixture
def app(services: Services) -> Iterator[FastAPI]:
    with use_app(services) as app:
        yield app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[AsyncClient]:
    async with _connect(app) as opened:
        yield opened


@pytest.fixture
def connect() -> Callable[[FastAPI], AsyncClient]:
    """For tests that build their own application."""
    return _connect


def _connect(app: FastAPI) -> AsyncClient:
    return AsyncClient(transport=ASGITransport(app, raise_app_exceptions=False), base_url=ADDRESS)
