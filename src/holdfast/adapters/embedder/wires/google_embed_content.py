"""The wire of Google's embedContent API. Its SDK is an extra."""

from typing import ClassVar, Final

import httpx2
from pydantic_ai.embeddings import EmbeddingModel
from pydantic_ai.embeddings.google import GoogleEmbeddingModel

from holdfast.adapters.embedder.wires.wire import MAX_TEXTS
from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.google_provider import (
    GOOGLE_FAILURES,
    build_google_provider,
)

# What Vertex accepts in one request: of the Gemini models one text, of the older ones five in every region.
_VERTEX_GEMINI: Final = "gemini-embedding"
_VERTEX_MAX_TEXTS: Final = 5


class GoogleEmbedContentWire:
    failures: ClassVar[SdkFailures] = GOOGLE_FAILURES
    waits_in_threads: ClassVar[bool] = False

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._is_vertex = account.provider == "google_vertex"
        self._provider = build_google_provider(account, http)

    def model(self, name: str) -> EmbeddingModel:
        return GoogleEmbeddingModel(name, provider=self._provider)

    def max_texts(self, name: str) -> int:
        if not self._is_vertex:
            return MAX_TEXTS
        return 1 if name.startswith(_VERTEX_GEMINI) else _VERTEX_MAX_TEXTS
