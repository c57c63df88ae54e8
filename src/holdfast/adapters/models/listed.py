"""What a provider says of its models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListedModel:
    """``window`` and ``sees`` None: the provider does not say."""

    name: str
    window: int | None
    # Whether it can be shown pictures.
    sees: bool | None = None


@dataclass(frozen=True, slots=True)
class ListedEmbedding:
    name: str
    dimensions: int | None


@dataclass(frozen=True, slots=True)
class Listed:
    models: tuple[ListedModel, ...] = ()
    embeddings: tuple[ListedEmbedding, ...] = ()
