"""A wire: one API over which vectors are made. It builds pydantic-ai's model."""

from typing import ClassVar, Final, Protocol

from pydantic_ai.embeddings import EmbeddingModel

from holdfast.adapters.models.pydantic_ai.errors import SdkFailures

# Texts in one request, unless the provider accepts fewer (memory-v1 §4.6). Servers that people run accept no more.
MAX_TEXTS: Final = 32


class EmbeddingWire(Protocol):
    # The exceptions of its SDK that pydantic-ai does not translate.
    failures: ClassVar[SdkFailures]
    # Whether its SDK waits in threads, which cannot be cancelled.
    waits_in_threads: ClassVar[bool]

    def model(self, name: str) -> EmbeddingModel:
        """A model to ask; the bridge caches it."""
        ...

    def max_texts(self, name: str) -> int:
        """How many texts one request may have."""
        ...
