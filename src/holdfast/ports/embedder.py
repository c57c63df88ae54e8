"""Making vectors of texts. One call is one request to a provider; the differences between providers are the adapter's."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.embeddings import Embeddings
from holdfast.errors import UnknownModel


class Embedder(Protocol):
    def is_configured(self, handle: str) -> bool:
        """Whether the provider of this model is configured, as far as can be known without asking it."""
        ...

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        """Make one vector of each text, in their order. ``is_query``: the texts are looked for; otherwise they are stored.
        Some models tell the two apart.

        A text that is too long for the model is cut. More texts than one request may have are sent in several. Cancelling
        closes the provider's socket at once. Nothing is retried here.

        Raises a ModelError for every failure of the provider, also if it answers with another number of vectors than of
        texts or with something that is no vector; UnknownModel if the provider is not configured or cannot embed.
        """
        ...


class _NoEmbedder:
    def is_configured(self, handle: str) -> bool:  # noqa: ARG002 - no handle is
        return False

    async def embed(
        self,
        handle: str,
        texts: Sequence[str],  # noqa: ARG002 - there is nobody to give them to
        *,
        is_query: bool = False,  # noqa: ARG002 - see above
    ) -> Embeddings:
        raise UnknownModel(f"No provider for the embedding model {handle} is configured.")


# For a server without any embedding model: every search is by words.
NO_EMBEDDER: Embedder = _NoEmbedder()
