"""The catalogue of models: what the configured providers list, and what is published about their models."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.adapters.embedder.catalogue import EmbeddingCatalogue
from holdfast.adapters.embedder.local.models import LOCAL_PROVIDER
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models import user_providers
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.discovery.model_list import ListedModel, ModelList
from holdfast.adapters.models.handles import split_handle, unknown_model
from holdfast.adapters.models.providers.known_models import (
    published_window,
    published_windows,
)
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.models import (
    DEFAULT_CONTEXT_WINDOW,
    GUIDE_HANDLE,
    GUIDE_PROVIDER,
    EmbeddingInfo,
    ModelChoice,
    ModelInfo,
    ModelSettings,
)
from holdfast.core.providers import Provider
from holdfast.loading import load_in_thread
from holdfast.ports.model import Catalogue

_UNSUPPORTED_SETTINGS: Final = "holdfast.adapters.models.pydantic_ai.unsupported_settings"


class ProviderCatalogue:
    """The models of the configured providers. ``default`` and ``default_embedding`` are the operator's choices."""

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        default: str | None = None,
        default_embedding: str | None = None,
        discovery: ModelDiscovery | None = None,
        embedder: EmbedderRouter | None = None,
    ) -> None:
        self._default = default
        self._default_embedding = default_embedding
        self._settings = settings
        self._discovery = discovery or ModelDiscovery()
        self._embeddings = EmbeddingCatalogue(
            settings, self._discovery, embedder or EmbedderRouter(settings)
        )

    async def list_models(self) -> Sequence[ModelInfo]:
        await self._discovery.refresh(self._settings.accounts.values())
        return [
            _model_info(provider, name, window)
            for provider in sorted(self._settings.providers)
            for name, window in self._list_offered(provider)
        ]

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        return await self._embeddings.list_all()

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        provider, _, name = handle.partition("/")
        account = self._settings.accounts.get(provider)
        if settings and _UNSUPPORTED_SETTINGS not in sys.modules:
            await load_in_thread(_load_unsupported_settings)
        if account is not None and published_window(provider, name) is None:
            await self._discovery.refresh([account])

    def find(self, handle: str, *, must_be_listed: bool = False) -> ModelInfo:
        provider, name = split_handle(handle)
        if handle != GUIDE_HANDLE and provider not in self._settings.accounts:
            raise unknown_model(handle, self._handles())
        if must_be_listed and self._is_missing(provider, name):
            raise unknown_model(handle, self._handles(), f"{provider} does not list {name}.")
        return _model_info(provider, name, self._context_window(provider, name))

    def check(self, choice: ModelChoice) -> None:
        if choice.endpoint is None:
            self.find(choice.handle)
        else:
            self._settings.find_account(choice)

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        provider, _ = split_handle(choice.handle)
        endpoint = self._settings.resolve_endpoint(provider, choice.endpoint)
        return replace(choice, endpoint=endpoint, ignored=_find_unsupported_settings(choice))

    async def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        return await self._embeddings.find(handle)

    def with_user_provider(self, provider: Provider) -> Catalogue:
        account = user_providers.build_account(provider, self._settings)
        settings = dataclasses.replace(self._settings, user_account=account)
        user_catalogue = ProviderCatalogue(settings, discovery=self._discovery)
        return user_providers.UserProviderCatalogue(self, user_catalogue, provider)

    async def verify(self, provider: Provider) -> None:
        await self._discovery.verify(user_providers.build_account(provider, self._settings))

    def default_handle(self) -> str | None:
        return self._default

    def default_embedding(self) -> str | None:
        return self._default_embedding

    def summary_handle(self, handle: str) -> str:
        row = PROVIDERS.get(handle.partition("/")[0])
        return f"{row.name}/{row.summary_model}" if row and row.summary_model else handle

    def is_reserved(self, name: str) -> bool:
        return name in (GUIDE_PROVIDER, LOCAL_PROVIDER) or name in PROVIDERS

    def _handles(self) -> list[str]:
        return [
            f"{provider}/{name}"
            for provider in sorted(self._settings.providers)
            for name, _ in self._list_offered(provider)
        ]

    def _list_offered(self, provider: str) -> list[tuple[str, int]]:
        """The models of the provider's list with their windows; without a list, those that it publishes."""
        if provider == GUIDE_PROVIDER:
            return [(GUIDE_HANDLE.partition("/")[2], DEFAULT_CONTEXT_WINDOW)]
        listed = self._last_list(provider)
        if listed is None:
            return list(published_windows(provider).items())
        return [(model.name, self._context_window(provider, model.name)) for model in listed.models]

    def _last_list(self, provider: str) -> ModelList | None:
        account = self._settings.accounts.get(provider)
        return None if account is None else self._discovery.last_list(account.cache_key)

    def _is_missing(self, provider: str, name: str) -> bool:
        """Whether the provider's list is known and lacks the model. What is published is accepted without a list,
        so it is accepted with one too."""
        listed = self._last_list(provider)
        if listed is None or published_window(provider, name) is not None:
            return False
        return listed.lacks(name)

    def _context_window(self, provider: str, name: str) -> int:
        """The window in the provider's list, else the published one."""
        listed = self._last_list(provider)
        models: Sequence[ListedModel] = listed.models if listed else ()
        stated = next((model.context_window for model in models if model.name == name), None)
        return stated or published_window(provider, name) or DEFAULT_CONTEXT_WINDOW


def _load_unsupported_settings() -> Callable[[ModelChoice], tuple[str, ...]]:
    from holdfast.adapters.models.pydantic_ai.unsupported_settings import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
        find_unsupported,
    )

    return find_unsupported


def _find_unsupported_settings(choice: ModelChoice) -> tuple[str, ...]:
    if choice.settings == ModelSettings(parallel_tool_calls=choice.settings.parallel_tool_calls):
        return ()
    return _load_unsupported_settings()(choice)


def _model_info(provider: str, name: str, window: int) -> ModelInfo:
    return ModelInfo(
        handle=f"{provider}/{name}",
        provider=provider,
        name=name,
        context_window=window,
        display_name=name,
    )
