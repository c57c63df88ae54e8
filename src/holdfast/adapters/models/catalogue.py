"""The models that are known by name. A provider's other models work too: they only have no line here."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.adapters.loading import loaded
from holdfast.adapters.models import brought, handles, providers
from holdfast.adapters.models.inquiry import Inquiry
from holdfast.adapters.models.listed import Listed, ListedModel
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
    providers.ANTHROPIC: {
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
    providers.GOOGLE: {
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
    providers.OPENAI: {
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
    providers.OPENAI: {
        "text-embedding-3-large": 3072,
        "text-embedding-3-small": 1536,
        "text-embedding-ada-002": 1536,
    },
    providers.GOOGLE: {"gemini-embedding-001": 3072, "text-embedding-004": 768},
    providers.MISTRAL: {"mistral-embed": 1024},
}


_HEEDING: Final = "holdfast.adapters.models.heeding"


class ProviderCatalogue:
    """The models of the configured providers. ``default`` is the operator's choice."""

    def __init__(
        self,
        settings: handles.ProviderSettings,
        *,
        default: str | None = None,
        inquiry: Inquiry | None = None,
    ) -> None:
        self._default = default
        self._settings = settings
        self._inquiry = inquiry or Inquiry()

    async def models(self) -> Sequence[ModelInfo]:
        await self._inquiry.ask(self._settings.accounts.values())
        return [
            _model(provider, name, window)
            for provider in sorted(self._settings.providers)
            for name, window in self._offered(provider)
        ]

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        await self._inquiry.ask(self._settings.accounts.values())
        return [
            _embedding(provider, name, dimensions)
            for provider in sorted(self._settings.accounts)
            for name, dimensions in self._embedding(provider)
        ]

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        provider, _, name = handle.partition("/")
        account = self._settings.accounts.get(provider)
        if settings and _HEEDING not in sys.modules:
            await loaded(_load_heeding)
        if account is not None and _known_window(provider, name) is None:
            await self._inquiry.ask([account])

    def find(self, handle: str) -> ModelInfo:
        provider, name = handles.split(handle)
        offered = provider in self._settings.providers
        if not offered or (provider == handles.HOLDFAST and handle != handles.GUIDE_HANDLE):
            raise handles.unknown(handle, self._handles())
        return _model(provider, name, self._window(provider, name))

    def check(self, choice: ModelChoice) -> None:
        if choice.endpoint is None:
            self.find(choice.handle)
        else:
            self._settings.account(choice)

    def judged(self, choice: ModelChoice) -> ModelChoice:
        endpoint = self._settings.endpoint(choice.provider, choice.endpoint)
        return replace(choice, endpoint=endpoint, ignored=_unheeded(choice))

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        provider, _, name = handle.partition("/")
        dimensions = dict(self._embedding(provider)).get(name) or _DIMENSIONS.get(provider, {}).get(
            name
        )
        return None if dimensions is None else _embedding(provider, name, dimensions)

    def including(self, provider: Provider) -> Catalogue:
        account = brought.account_of(provider, self._settings)
        settings = dataclasses.replace(self._settings, brought=account)
        own = ProviderCatalogue(settings, inquiry=self._inquiry)
        return brought.CatalogueWith(self, own, provider)

    async def verify(self, provider: Provider) -> None:
        await self._inquiry.verify(brought.account_of(provider, self._settings))

    def default_handle(self) -> str | None:
        return self._default

    def _handles(self) -> list[str]:
        return [
            f"{provider}/{name}"
            for provider in sorted(self._settings.providers)
            for name, _ in self._offered(provider)
        ]

    def _offered(self, provider: str) -> list[tuple[str, int]]:
        """What the provider said, else what is known of it."""
        listed = self._listed(provider)
        if listed is None:
            return list(_WINDOWS.get(provider, {}).items())
        return [(model.name, self._window(provider, model.name)) for model in listed.models]

    def _listed(self, provider: str) -> Listed | None:
        account = self._settings.accounts.get(provider)
        return None if account is None else self._inquiry.known(account.key)

    def _window(self, provider: str, name: str) -> int:
        """The window as the provider says it, else as it is published."""
        listed = self._listed(provider)
        models: Sequence[ListedModel] = listed.models if listed else ()
        said = next((model.window for model in models if model.name == name), None)
        return said or _known_window(provider, name) or DEFAULT_CONTEXT_WINDOW

    def _embedding(self, provider: str) -> list[tuple[str, int]]:
        known = _DIMENSIONS.get(provider, {})
        listed = self._listed(provider)
        if listed is None:
            return list(known.items()) if provider in self._settings.accounts else []
        return [
            (model.name, dimensions)
            for model in listed.embeddings
            if (dimensions := model.dimensions or known.get(model.name)) is not None
        ]


def _load_heeding() -> Callable[[ModelChoice], tuple[str, ...]]:
    from holdfast.adapters.models.heeding import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
        unheeded,
    )

    return unheeded


def _unheeded(choice: ModelChoice) -> tuple[str, ...]:
    if choice.settings == ModelSettings(parallel_tool_calls=choice.settings.parallel_tool_calls):
        return ()
    return _load_heeding()(choice)


def _known_window(provider: str, name: str) -> int | None:
    """The window of a model, or of the one that its name is a dated edition of."""
    windows = _WINDOWS.get(provider, {})
    stem = name
    while stem:
        if stem in windows:
            return windows[stem]
        stem = stem.rpartition("-")[0]
    return None


def _model(provider: str, name: str, window: int) -> ModelInfo:
    return ModelInfo(
        handle=f"{provider}/{name}",
        provider=provider,
        name=name,
        context_window=window,
        display_name=name,
    )


def _embedding(provider: str, name: str, dimensions: int) -> EmbeddingInfo:
    return EmbeddingInfo(
        handle=f"{provider}/{name}",
        provider=provider,
        name=name,
        dimensions=dimensions,
        display_name=name,
    )
