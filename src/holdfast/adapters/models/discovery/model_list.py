"""What a provider says of its models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListedModel:
    """``window`` and ``sees`` None: the provider does not say."""

    name: str
    context_window: int | None
    # Whether it can be shown pictures.
    supports_images: bool | None = None


@dataclass(frozen=True, slots=True)
class ListedEmbedding:
    name: str
    dimensions: int | None


@dataclass(frozen=True, slots=True)
class ModelList:
    models: tuple[ListedModel, ...] = ()
    embeddings: tuple[ListedEmbedding, ...] = ()
