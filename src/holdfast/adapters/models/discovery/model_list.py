"""What a provider says about its models."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class ListedModel:
    """``context_window`` and ``supports_images`` None: the provider does not say."""

    name: str
    context_window: int | None
    supports_images: bool | None = None


@dataclass(frozen=True, slots=True)
class ListedEmbedding:
    name: str
    dimensions: int | None


@dataclass(frozen=True, slots=True)
class ModelList:
    models: tuple[ListedModel, ...] = ()
    embeddings: tuple[ListedEmbedding, ...] = ()
    # Listed, but neither for chat nor for embeddings as far as their names say.
    others: frozenset[str] = frozenset()

    def lacks(self, name: str) -> bool:
        """Whether the provider lists other models and not this one.

        Providers accept names that their lists do not have: aliases of a dated model (``claude-x``,
        ``claude-x-latest``), variants (``llama-4:free``), and names that a gateway's pattern (``openai/*``) stands for.
        """
        embeddings = {model.name for model in self.embeddings}
        listed = {model.name for model in self.models} | embeddings | self.others
        stem = name.removesuffix("-latest")
        dated = re.compile(rf"{re.escape(stem)}-[\d-]+")
        return bool(listed) and not (
            listed & {name, stem, name.partition(":")[0]}
            or any(dated.fullmatch(other) for other in listed)
            or any(fnmatchcase(name, other) for other in listed if "*" in other)
        )
