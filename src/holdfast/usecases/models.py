"""Which models there are."""

from collections.abc import Sequence

from holdfast.core.agents import Actor
from holdfast.core.models import EmbeddingInfo, ModelInfo
from holdfast.ports.services import Services
from holdfast.usecases import providers


async def list_models(services: Services) -> Sequence[ModelInfo]:
    """What the operator's providers have."""
    return await services.catalogue.list_models()


async def list_user_models(services: Services, actor: Actor) -> Sequence[ModelInfo]:
    """What the providers have that users brought."""
    return await providers.list_models(services, actor)


async def list_embeddings(services: Services) -> Sequence[EmbeddingInfo]:
    return await services.catalogue.list_embeddings()
