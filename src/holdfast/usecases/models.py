"""Listing the available models."""

from collections.abc import Sequence

from holdfast.core.agents import Actor
from holdfast.core.models import EmbeddingInfo, ModelInfo
from holdfast.ports.services import Services
from holdfast.usecases import providers


async def list_models(services: Services) -> Sequence[ModelInfo]:
    """The models of the providers that the operator configured."""
    return await services.catalogue.list_models()


async def list_user_models(services: Services, actor: Actor) -> Sequence[ModelInfo]:
    """The models of the providers whose keys users stored."""
    return await providers.list_models(services, actor)


async def list_embeddings(services: Services) -> Sequence[EmbeddingInfo]:
    return await services.catalogue.list_embeddings()
