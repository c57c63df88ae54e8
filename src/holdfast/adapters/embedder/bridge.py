"""Asks providers for vectors through pydantic-ai.

Importing this module imports pydantic-ai (0.7 s), and the first model of a provider imports its SDK: the router does both
in a thread.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import httpx2
from pydantic_ai.embeddings import EmbeddingModel, EmbeddingResult

from holdfast.adapters.embedder.wires.wire import EmbeddingWire
from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.providers.table import EMBEDDING_WIRES
from holdfast.adapters.models.pydantic_ai.errors import translate_errors
from holdfast.adapters.models.pydantic_ai.http_clients import HttpClients, close_responses

_T = TypeVar("_T")

# Callers may name any model; this many are cached.
_MAX_MODELS: Final = 256


class EmbeddingBridge:
    """One wire for each account of the operator."""

    def __init__(self, timeout_seconds: float) -> None:
        self._clients = HttpClients(timeout_seconds)
        self._wires: dict[str, EmbeddingWire] = {}
        self._model = lru_cache(maxsize=_MAX_MODELS)(self._make_model)
        # Requests in threads that nobody waits for any more.
        self._left: set[asyncio.Task[Any]] = set()

    def is_loaded(self, account: Account) -> bool:
        """Whether the account can be asked without loading anything."""
        return account.provider in self._wires

    def load(self, account: Account) -> None:
        """Import the provider's SDK and build its client. It blocks."""
        if self.is_loaded(account):
            return
        module, name = EMBEDDING_WIRES[account.row.embedding_wire or ""]
        wire_class = getattr(import_module(module), name)
        build = cast("Callable[[Account, httpx2.AsyncClient], EmbeddingWire]", wire_class)
        with translate_errors(account.secrets, wire_class.failures):
            self._wires[account.provider] = build(account, self._clients.find_or_build(account))

    def max_texts(self, account: Account, name: str) -> int:
        return self._wires[account.provider].max_texts(name)

    async def embed(
        self, account: Account, name: str, texts: Sequence[str], *, is_query: bool
    ) -> tuple[Sequence[Sequence[float]], int]:
        """What the provider answered, unchecked, and the tokens that it counted. Sends one request; a ModelError if it
        fails."""
        wire = self._wires[account.provider]
        async with close_responses():
            with translate_errors(account.secrets, wire.failures, reading=True):
                model = self._model(account.provider, name)
                asking = model.embed(texts, input_type="query" if is_query else "document")
                result: EmbeddingResult = (
                    await self._wait_or_leave(asking) if wire.waits_in_threads else await asking
                )
                return result.embeddings, result.usage.input_tokens

    async def aclose(self) -> None:
        await self._clients.aclose()

    def _make_model(self, provider: str, name: str) -> EmbeddingModel:
        return self._wires[provider].model(name)

    async def _wait_or_leave(self, asking: Coroutine[Any, Any, _T]) -> _T:
        """Await a request that cannot be cancelled: if this task is, the request ends alone, by its own timeout."""
        task = asyncio.create_task(asking)
        self._left.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            # Read, so that asyncio does not report it as never retrieved.
            task.exception()
