"""The embedder of a test: vectors of words, through the port ``Embedder``."""

import asyncio
from collections.abc import Sequence

from holdfast.core.embeddings import Embeddings, to_vector
from holdfast.errors import ModelError, UnknownModel
from holdfast.testing import embed_words

HANDLE = "test/words"


class WordEmbedder:
    """Texts that share words are near. ``failures`` are raised first, in their order; ``gate`` holds back every answer
    while it is not set."""

    def __init__(self, *handles: str, dimensions: int = 64) -> None:
        self.handles = set(handles or (HANDLE,))
        self.dimensions = dimensions
        self.failures: list[ModelError] = []
        self.calls: list[tuple[str, Sequence[str], bool]] = []
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    def is_configured(self, handle: str) -> bool:
        return handle in self.handles

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        if handle not in self.handles:
            raise UnknownModel(f"No provider for the embedding model {handle} is configured.")
        self.calls.append((handle, texts, is_query))
        self.asked.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        vectors = tuple(to_vector(embed_words(text, self.dimensions)) for text in texts)
        return Embeddings(vectors=vectors, tokens=len(texts))
