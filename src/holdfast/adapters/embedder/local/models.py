"""Vectors by the local models, in a thread of their own. Cheap to import; numpy is loaded when first needed."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.embedder.local.package import LOCAL_MODELS, LocalModel
from holdfast.core.embeddings import Embeddings, Vector
from holdfast.errors import ModelError
from holdfast.loading import load_in_thread

if TYPE_CHECKING:
    from holdfast.adapters.embedder.local.sentence_encoder import SentenceEncoder

LOCAL_PROVIDER: Final = "local"

# Texts that are encoded before others get their turn: a query does not wait for a whole file.
_TEXTS_PER_TURN: Final = 8


class LocalModels:
    def __init__(self, models: Mapping[str, LocalModel] = LOCAL_MODELS) -> None:
        self._models = models
        self._loading = asyncio.Lock()
        self._encoders: dict[str, SentenceEncoder] = {}
        # One: the other processors are for requests.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="local-embedding")
        # Looking for packages takes 0.1 ms, and none is installed while the server runs.
        self._find_missing = lru_cache(maxsize=None)(lambda name: models[name].find_missing())

    def is_installed(self, name: str) -> bool:
        return name in self._models and not self._find_missing(name)

    def list_installed(self) -> list[LocalModel]:
        return [model for name, model in self._models.items() if self.is_installed(name)]

    async def embed(self, name: str, texts: Sequence[str]) -> Embeddings:
        """The vectors of the texts; ModelError if the model's files cannot be used. Cancelling leaves the texts that are
        being encoded to the thread."""
        encoder = await self._load(self._models[name])
        loop = asyncio.get_running_loop()
        vectors: list[Vector] = []
        tokens = 0
        for start in range(0, len(texts), _TEXTS_PER_TURN):
            turn = texts[start : start + _TEXTS_PER_TURN]
            made, used = await loop.run_in_executor(self._thread, encoder.encode, turn)
            vectors += made
            tokens += used
        return Embeddings(vectors=tuple(vectors), tokens=tokens, cost=0)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _load(self, model: LocalModel) -> "SentenceEncoder":
        async with self._loading:
            if model.name not in self._encoders:
                folder = model.find_folder()
                if folder is None:
                    raise ModelError(f"The files of local/{model.name} are gone.")
                self._encoders[model.name] = await load_in_thread(
                    _load_encoder, folder, model.max_tokens
                )
        return self._encoders[model.name]


def _load_encoder(folder: Path, max_tokens: int) -> "SentenceEncoder":
    from holdfast.adapters.embedder.local.sentence_encoder import (  # noqa: PLC0415 - numpy takes 0.1 s to import
        SentenceEncoder,
    )

    return SentenceEncoder.load(folder, max_tokens)
