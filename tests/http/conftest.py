"""The whole application over a real SQLite store. Only the model and the toolbox are stand-ins."""

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from tests.blank_store import put_blank_store

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.clock import RandomIds, SystemClock
from holdfast.adapters.dispatch.in_process import InProcessDispatch
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.addresses import Reach
from holdfast.core.messages import Outcome, Text, ToolReturn
from holdfast.core.models import EmbeddingInfo, ModelChoice, ModelInfo
from holdfast.core.providers import Provider
from holdfast.core.tools import Tool, ToolKind
from holdfast.core.turn import PlannedCall
from holdfast.errors import InvalidArgument, UnknownModel
from holdfast.http.app import HttpSettings, build_app
from holdfast.ports.house import House
from holdfast.ports.model import Catalogue, ModelEvent, Question
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

ADDRESS = "http://localhost:8283"


class SilentModel:
    """These tests never get as far as asking."""

    def ask(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        raise AssertionError(question)


_MODELS = ("anthropic/claude-x", 200_000), ("openai/gpt-x", 128_000)


class TwoModels:
    async def models(self) -> Sequence[ModelInfo]:
        return [_model(handle, window) for handle, window in _MODELS]

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        return [_EMBEDDING]

    async def prepare(self, handle: str, *, settings: bool = False) -> None: ...

    def find(self, handle: str) -> ModelInfo:
        if "/" not in handle:
            raise InvalidArgument("The model handle should be in the format provider/model-name")
        for known, window in _MODELS:
            if known == handle:
                return _model(handle, window)
        raise UnknownModel(f"Handle {handle} not found, must be one of []")

    def check(self, choice: ModelChoice) -> None:
        self.find(choice.handle)

    def judged(self, choice: ModelChoice) -> ModelChoice:
        return choice

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        return _EMBEDDING if handle == _EMBEDDING.handle else None

    def including(self, provider: Provider) -> Catalogue:
        raise AssertionError(provider)

    async def verify(self, provider: Provider) -> None:
        raise AssertionError(provider)

    def default_handle(self) -> str | None:
        return "openai/gpt-x"


_EMBEDDING = EmbeddingInfo(
    handle="openai/embed-x",
    provider="openai",
    name="embed-x",
    dimensions=1536,
    display_name="Embed X",
)


def _model(handle: str, window: int) -> ModelInfo:
    provider, name = handle.split("/")
    return ModelInfo(
        handle=handle,
        provider=provider,
        name=name,
        context_window=window,
        display_name=name.title(),
    )


class EchoToolbox:
    """Says what it was asked to run."""

    def builtin(self) -> Sequence[BuiltinSpec]:
        return [
            _builtin("conversation_search", ToolKind.CORE, parallel=True),
            _builtin("memory_insert", ToolKind.SLEEPTIME),
            _builtin("memory_replace", ToolKind.SLEEPTIME),
        ]

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        return _said(tool.name, f"{tool.name} {planned.arguments}", planned.call.id)

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        return _said(
            function, f"{function} {dict(arguments)} {dict(environment)} {[*requirements]}"
        )


def _said(name: str, text: str, call_id: str = "call_1") -> ToolReturn:
    return ToolReturn(call_id=call_id, name=name, outcome=Outcome.FINISHED, content=(Text(text),))


def _builtin(name: str, kind: ToolKind, *, parallel: bool = False) -> BuiltinSpec:
    return BuiltinSpec(
        name=name,
        description=f"The {name} tool.",
        parameters={"type": "object", "properties": {}, "required": []},
        kind=kind,
        parallel=parallel,
    )


@asynccontextmanager
async def _opened(home: Path) -> AsyncIterator[House]:
    path = put_blank_store(home / "holdfast.db")
    store = await SqliteStore.open(path, cipher=FernetCipher("test"))
    bell = LocalBell()
    yield House(
        store=store,
        events=SqlEventLog(store),
        dispatch=InProcessDispatch(bell),
        bell=bell,
        model=SilentModel(),
        catalogue=TwoModels(),
        toolbox=EchoToolbox(),
        outgoing=GuardedOutgoing(Reach()),
        prices=GenaiPrices({}, SystemClock()),
        clock=SystemClock(),
        ids=RandomIds(),
    )
    await store.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with _opened(tmp_path) as house:
        yield house


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same application behind a real server, for clients that bring their own HTTP."""
    home = tmp_path_factory.mktemp("home")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _opened(home) as house:
            app.state.house = house
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
async def app(house: House) -> FastAPI:
    return build_app(house, HttpSettings())


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
