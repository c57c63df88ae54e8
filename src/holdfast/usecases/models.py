"""Listing the available models."""

import asyncio
from collections.abc import Sequence

from holdfast.core.agents import Actor
from holdfast.core.models import EmbeddingInfo, ModelInfo
from holdfast.core.providers import Provider
from holdfast.errors import InvalidArgument
from holdfast.ports.services import Services
from holdfast.usecases import providers


async def list_models(services: Services) -> Sequence[ModelInfo]:
    """The models of the providers that the operator configured."""
    return await services.catalogue.list_models()


async def list_user_models(services: Services, actor: Actor) -> list[ModelInfo]:
    """The models of the providers whose keys users stored. The providers are queried concurrently."""
    found = await providers.list_page(services, actor, providers.ALL_PROVIDERS)
    models = await asyncio.gather(*(_list_models(services, provider) for provider in found))
    return [info for infos in models for info in infos]


async def list_embeddings(services: Services) -> Sequence[EmbeddingInfo]:
    return await services.catalogue.list_embeddings()


async def _list_models(services: Services, provider: Provider) -> Sequence[ModelInfo]:
    try:
        return await services.catalogue.with_user_provider(provider).list_models()
    except InvalidArgument:
        # The operator has restricted the allowed addresses since this provider was stored.
        return ()
