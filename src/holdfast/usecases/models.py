"""Which models there are."""

from collections.abc import Sequence

from holdfast.core.agents import Actor
from holdfast.core.models import EmbeddingInfo, ModelInfo
from holdfast.ports.house import House
from holdfast.usecases import providers


async def list_models(house: House) -> Sequence[ModelInfo]:
    """What the operator's providers have."""
    return await house.catalogue.models()


async def list_brought(house: House, actor: Actor) -> Sequence[ModelInfo]:
    """What the providers have that users brought."""
    return await providers.models(house, actor)


async def list_embeddings(house: House) -> Sequence[EmbeddingInfo]:
    return await house.catalogue.embeddings()
