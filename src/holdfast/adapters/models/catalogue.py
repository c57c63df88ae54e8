"""The models that are known by name. A provider's other models work too: they only have no line here."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.adapters.loading import load_in_thread
from holdfast.adapters.models import handles, user_providers
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.discovery.model_list import ListedModel, ModelList
from holdfast.adapters.models.providers import table
from holdfast.core.models import (
    DEFAULT_CONTEXT_WINDOW,
    EmbeddingInfo,
    ModelChoice,
    ModelInfo,
    ModelSettings,
)
from holdfast.core.providers import Provider
from holdfast.ports.model import Catalogue

# Context windows in tokens, as the providers publish them.
_WINDOWS: Final[dict[str, dict[str, int]]] = {
    table.ANTHROPIC: {
        "claude-haiku-4-5": 200_000,
        "claude-haiku-5-5": 1_000_000,
        "claude-opus-4-1": 200_000,
        "claude-opus-4-5": 200_000,
        "claude-opus-4-6": 1_000_000,
        "claude-opus-4-7": 1_000_000,
        "claude-opus-4-8": 1_000_000,
        "claude-opus-5": 1_000_000,
        "claude-opus-5-5": 1_000_000,
        "claude-sonnet-4-5": 200_000,
        "claude-sonnet-4-6": 1_000_000,
        "claude-sonnet-5": 1_000_000,
        "claude-sonnet-5-5": 1_000_000,
    },
    table.GOOGLE: {
        "gemini-2.5-flash": 1_048_576,
        "gemini-2.5-flash-lite": 1_000_000,
        "gemini-2.5-pro": 1_048_576,
        "gemini-3-flash-preview": 1_000_000,
        "gemini-3-pro-preview": 1_000_000,
        "gemini-3.1-flash-lite": 1_000_000,
        "gemini-3.1-pro-preview": 1_000_000,
        "gemini-3.5-flash": 1_000_000,
        "gemini-3.5-flash-lite": 1_000_000,
        "gemini-3.6-flash": 1_000_000,
        "gemini-3.7-flash": 1_000_000,
        "gemini-3.8-flash": 1_000_000,
        "gemini-4-argon": 1_048_576,
    },
    handles.HOLDFAST: {"guide": DEFAULT_CONTEXT_WINDOW},
    table.OPENAI: {
        "gpt-3.5-turbo": 16_385,
        "gpt-4": 8_192,
        "gpt-4-turbo": 128_000,
        "gpt-4.1": 1_000_000,
        "gpt-4.1-mini": 1_000_000,
        "gpt-4.1-nano": 1_000_000,
        "gpt-4o": 128_000,
        "gpt-4o-mini": 128_000,
        "gpt-5": 400_000,
        "gpt-5-mini": 400_000,
        "gpt-5-nano": 400_000,
        "gpt-5.1": 400_000,
        "gpt-5.2": 400_000,
        "gpt-5.4": 1_050_000,
        "gpt-5.4-mini": 400_000,
        "gpt-5.4-nano": 400_000,
        "gpt-5.5": 1_000_000,
        "gpt-5.6-luna": 1_050_000,
        "gpt-5.6-sol": 1_050_000,
        "gpt-5.6-terra": 1_050_000,
        "gpt-6-astra": 1_050_000,
        "gpt-6-luna": 1_050_000,
        "gpt-6-sol": 1_050_000,
        "gpt-6.1-sol": 1_050_000,
        "gpt-6.1-terra": 1_050_000,
        "o1": 200_000,
        "o3": 200_000,
        "o3-mini": 200_000,
        "o4-mini": 200_000,
    },
}

_DIMENSIONS: Final[dict[str, dict[str, int]]] = {
    table.OPENAI: {
        "text-embedding-3-large": 3072,
        "text-embedding-3-small": 1536,
        "text-embedding-ada-002": 1536,
    },
    table.GOOGLE: {"gemini-embedding-001": 3072, "text-embedding-004": 768},
    table.MISTRAL: {"mistral-embed": 1024},
}


_UNSUPPORTED_SETTINGS: Final = "holdfast.adapters.models.pydantic_ai.unsupported_settings"


class ProviderCatalogue:
    """The models of the configured providers. ``default`` is the operator's choice."""

    def __init__(
        self,
        settings: handles.ProviderSettings,
        *,
        default: str | None = None,
        discovery: ModelDiscovery | None = None,
    ) -> None:
        self._default = default
        self._settings = settings
        self._discovery = discovery or ModelDiscovery()

    async def list_models(self) -> Sequence[ModelInfo]:
        await self._discovery.refresh(self._settings.accounts.values())
        return [
            _model_info(provider, name, window)
            for provider in sorted(self._settings.providers)
            for name, window in self._list_offered(provider)
        ]

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        await self._discovery.refresh(self._settings.accounts.values())
        return [
            _embedding_info(provider, name, dimensions)
            for provider in sorted(self._settings.accounts)
            for name, dimensions in self._list_embedding_dimensions(provider)
        ]

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        provider, _, name = handle.partition("/")
        account = self._settings.accounts.get(provider)
        if settings and _UNSUPPORTED_SETTINGS not in sys.modules:
            await load_in_thread(_load_unsupported_settings)
        if account is not None and _published_window(provider, name) is None:
            await self._discovery.refresh([account])

    def find(self, handle: str) -> ModelInfo:
        provider, name = handles.split_handle(handle)
        offered = provider in self._settings.providers
        if not offered or (provider == handles.HOLDFAST and handle != handles.GUIDE_HANDLE):
            raise handles.unknown_model(handle, self._handles())
        return _model_info(provider, name, self._context_window(provider, name))

    def check(self, choice: ModelChoice) -> None:
        if choice.endpoint is None:
            self.find(choice.handle)
        else:
            self._settings.find_account(choice)

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        endpoint = self._settings.resolve_endpoint(choice.provider, choice.endpoint)
        return replace(choice, endpoint=endpoint, ignored=_find_unsupported_settings(choice))

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        provider, _, name = handle.partition("/")
        dimensions = dict(self._list_embedding_dimensions(provider)).get(name) or _DIMENSIONS.get(
            provider, {}
        ).get(name)
        return None if dimensions is None else _embedding_info(provider, name, dimensions)

    def with_user_provider(self, provider: Provider) -> Catalogue:
        account = user_providers.build_account(provider, self._settings)
        settings = dataclasses.replace(self._settings, user_account=account)
        own = ProviderCatalogue(settings, discovery=self._discovery)
        return user_providers.UserProviderCatalogue(self, own, provider)

    async def verify(self, provider: Provider) -> None:
        await self._discovery.verify(user_providers.build_account(provider, self._settings))

    def default_handle(self) -> str | None:
        return self._default

    def _handles(self) -> list[str]:
        return [
            f"{provider}/{name}"
            for provider in sorted(self._settings.providers)
            for name, _ in self._list_offered(provider)
        ]

    def _list_offered(self, provider: str) -> list[tuple[str, int]]:
        """What the provider said, else what is known of it."""
        listed = self._last_list(provider)
        if listed is None:
            return list(_WINDOWS.get(provider, {}).items())
        return [(model.name, self._context_window(provider, model.name)) for model in listed.models]

    def _last_list(self, provider: str) -> ModelList | None:
        account = self._settings.accounts.get(provider)
        return None if account is None else self._discovery.last_list(account.cache_key)

    def _context_window(self, provider: str, name: str) -> int:
        """The window as the provider says it, else as it is published."""
        listed = self._last_list(provider)
        models: Sequence[ListedModel] = listed.models if listed else ()
        said = next((model.context_window for model in models if model.name == name), None)
        return said or _published_window(provider, name) or DEFAULT_CONTEXT_WINDOW

    def _list_embedding_dimensions(self, provider: str) -> list[tuple[str, int]]:
        known = _DIMENSIONS.get(provider, {})
        listed = self._last_list(provider)
        if listed is None:
            return list(known.items()) if provider in self._settings.accounts else []
        return [
            (model.name, dimensions)
            for model in listed.embeddings
            if (dimensions := model.dimensions or known.get(model.name)) is not None
        ]


def _load_unsupported_settings() -> Callable[[ModelChoice], tuple[str, ...]]:
    from holdfast.adapters.models.pydantic_ai.unsupported_settings import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
        find_unsupported,
    )

    return find_unsupported


def _find_unsupported_settings(choice: ModelChoice) -> tuple[str, ...]:
    if choice.settings == ModelSettings(parallel_tool_calls=choice.settings.parallel_tool_calls):
        return ()
    return _load_unsupported_settings()(choice)


def _published_window(provider: str, name: str) -> int | None:
    """The window of a model, or of the one that its name is a dated edition of."""
    windows = _WINDOWS.get(provider, {})
    stem = name
    while stem:
        if stem in windows:
            return windows[stem]
        stem = stem.rpartition("-")[0]
    return None


def _model_info(provider: str, name: str, window: int) -> ModelInfo:
    return ModelInfo(
        handle=f"{provider}/{name}",
        provider=provider,
        name=name,
        context_window=window,
        display_name=name,
    )


def _embedding_info(provider: str, name: str, dimensions: int) -> EmbeddingInfo:
    return EmbeddingInfo(
        handle=f"{provider}/{name}",
        provider=provider,
        name=name,
        dimensions=dimensions,
        display_name=name,
    )
