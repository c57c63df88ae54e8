"""The models that are known by name. A provider's other models work too: they only have no line here."""

from collections.abc import Sequence
from typing import Final

from holdfast.adapters.models import handles
from holdfast.core.models import DEFAULT_CONTEXT_WINDOW, EmbeddingInfo, ModelInfo

# Context windows in tokens, as the providers publish them.
_WINDOWS: Final[dict[str, dict[str, int]]] = {
    handles.ANTHROPIC: {
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
    handles.GOOGLE: {
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
    handles.OPENAI: {
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
    handles.OPENAI: {
        "text-embedding-3-large": 3072,
        "text-embedding-3-small": 1536,
        "text-embedding-ada-002": 1536,
    },
}


class ProviderCatalogue:
    """The models of the configured providers. ``default`` is the operator's choice."""

    def __init__(self, settings: handles.ProviderSettings, *, default: str | None = None) -> None:
        self._default = default
        self._providers = settings.providers
        self._models = tuple(
            _model(provider, name, window)
            for provider in sorted(self._providers)
            for name, window in _WINDOWS[provider].items()
        )
        self._embeddings = tuple(
            _embedding(provider, name, dimensions)
            for provider in sorted(self._providers & _DIMENSIONS.keys())
            for name, dimensions in _DIMENSIONS[provider].items()
        )

    def models(self) -> Sequence[ModelInfo]:
        return self._models

    def embeddings(self) -> Sequence[EmbeddingInfo]:
        return self._embeddings

    def find(self, handle: str) -> ModelInfo:
        provider, name = handles.split(handle)
        offered = provider in self._providers
        if not offered or (provider == handles.HOLDFAST and handle != handles.GUIDE_HANDLE):
            raise handles.unknown(handle, [model.handle for model in self._models])
        return _model(provider, name, _window(provider, name))

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        provider, _, name = handle.partition("/")
        dimensions = _DIMENSIONS.get(provider, {}).get(name)
        return None if dimensions is None else _embedding(provider, name, dimensions)

    def default_handle(self) -> str | None:
        return self._default


def _window(provider: str, name: str) -> int:
    """The window of a model, or of the one that its name is a dated edition of."""
    windows = _WINDOWS[provider]
    stem = name
    while stem:
        if stem in windows:
            return windows[stem]
        stem = stem.rpartition("-")[0]
    return DEFAULT_CONTEXT_WINDOW


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
