"""Asks providers for vectors through pydantic-ai.

Importing this module imports pydantic-ai (0.7 s), and the first model of a provider imports its SDK: the router does both
in a thread.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Final, cast

import httpx2
from pydantic_ai.embeddings import EmbeddingModel

from holdfast.adapters.embedder.wires.wire import EmbeddingWire
from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.providers.table import EMBEDDING_WIRES
from holdfast.adapters.models.pydantic_ai.errors import translate_errors
from holdfast.adapters.models.pydantic_ai.http_clients import HttpClients, close_responses

# Callers may name any model; this many are cached.
_MAX_MODELS: Final = 256


class EmbeddingBridge:
    """One wire for each account of the operator."""

    def __init__(self, timeout_seconds: float) -> None:
        self._clients = HttpClients(timeout_seconds)
        self._wires: dict[str, EmbeddingWire] = {}
        self._model = lru_cache(maxsize=_MAX_MODELS)(self._make_model)

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
                result = await model.embed(texts, input_type="query" if is_query else "document")
                return result.embeddings, result.usage.input_tokens

    async def aclose(self) -> None:
        await self._clients.aclose()

    def _make_model(self, provider: str, name: str) -> EmbeddingModel:
        return self._wires[provider].model(name)
