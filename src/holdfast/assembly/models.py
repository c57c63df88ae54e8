"""Models: how they are asked, which there are, what they cost, and which of them make vectors."""

from contextlib import AsyncExitStack

from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.config import Settings
from holdfast.ports.clock import Clock


def open_models(
    settings: Settings, stack: AsyncExitStack, clock: Clock
) -> tuple[ModelRouter, ProviderCatalogue, GenaiPrices, EmbedderRouter]:
    providers = build_provider_settings(settings)
    # Shared, so that a list of models that the catalogue has asked for need not be asked for again by the model.
    discovery = ModelDiscovery()
    model = ModelRouter(providers, discovery=discovery)
    stack.push_async_callback(model.aclose)
    prices = GenaiPrices(_priced_providers(providers), clock)
    embedder = EmbedderRouter(providers, prices, timeout_seconds=settings.embedding_timeout_seconds)
    stack.push_async_callback(embedder.aclose)
    catalogue = ProviderCatalogue(
        providers,
        default=settings.default_model,
        default_embedding=settings.default_embedding,
        discovery=discovery,
        embedder=embedder,
    )
    return model, catalogue, prices, embedder


def build_provider_settings(settings: Settings) -> ProviderSettings:
    return ProviderSettings(
        settings.providers,
        allowed_model_endpoints=settings.allowed_model_endpoints,
        silence_seconds=settings.model_silence_seconds,
    )


def _priced_providers(providers: ProviderSettings) -> dict[str, str | None]:
    """The base URL of each provider that charges for its models: a local one does not."""
    return {
        name: account.base_url
        for name, account in providers.accounts.items()
        if not account.is_loopback
    }
