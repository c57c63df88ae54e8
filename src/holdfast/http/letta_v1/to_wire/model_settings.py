"""An agent's model and its settings as V1 shows them (wire-v1 §3.11)."""

from typing import Any

from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.http.letta_v1.schemas.model_settings import (
    ModelSettingsInput,
)
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig, LlmConfig

_GOOGLE = ("google_ai", "google_vertex")


# Of these keys of model_settings the values in effect are shown, whatever was sent.
_EFFECTIVE_KEYS = frozenset(ModelSettingsInput.model_fields) - {"provider_type"}


_EMBEDDING_DIMENSIONS = {"text-embedding-3-large": 3072}


_DEFAULT_EMBEDDING_DIMENSIONS = 1536


def model_settings(choice: ModelChoice) -> dict[str, Any]:
    """The provider's defaults, then what the caller sent, then what is in effect; the last one wins."""
    provider = choice.provider_type or choice.provider
    sent = {
        key: value
        for key, value in (choice.model_settings or {}).items()
        if key not in _EFFECTIVE_KEYS
    }
    return _default_settings(provider) | sent | _effective_settings(provider, choice.settings)


def _default_settings(provider: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "provider_type": provider,
        "max_output_tokens": 4096,
        "parallel_tool_calls": True,
        "temperature": 1.0,
    }
    match provider:
        case "openai":
            # What V1 showed for an agent that gave only a model.
            return shown | {
                "max_output_tokens": 16384,
                "reasoning": {"reasoning_effort": "minimal"},
                "response_format": None,
                "strict": False,
            }
        case "anthropic":
            return shown | {
                "thinking": {"type": "disabled", "budget_tokens": 1024},
                "effort": None,
                "verbosity": None,
                "response_format": None,
                "strict": False,
            }
        case "google_ai" | "google_vertex":
            thinking = {"include_thoughts": True, "thinking_budget": 1024}
            return shown | {
                "max_output_tokens": 65536,
                "thinking_config": thinking,
                "response_schema": None,
            }
        case _:
            return shown | {"response_format": None}


def _effective_settings(provider: str, settings: ModelSettings) -> dict[str, Any]:
    shown = {
        "max_output_tokens": settings.max_output_tokens,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "temperature": settings.temperature,
        "strict": settings.strict,
        "verbosity": settings.verbosity,
        "frequency_penalty": settings.frequency_penalty,
        "response_schema" if provider in _GOOGLE else "response_format": settings.response_format,
    }
    if settings.reasoning_effort is not None:
        shown |= (
            {"effort": settings.reasoning_effort}
            if provider == "anthropic"
            else {"reasoning": {"reasoning_effort": settings.reasoning_effort}}
        )
    if settings.thinking is not None:
        shown |= _thinking(provider, settings)
    return {key: value for key, value in shown.items() if value is not None}


def _thinking(provider: str, settings: ModelSettings) -> dict[str, Any]:
    budget = settings.thinking_budget or 1024
    if provider in _GOOGLE:
        config = {"include_thoughts": settings.thinking, "thinking_budget": budget}
        return {"thinking_config": config}
    kind = "enabled" if settings.thinking else "disabled"
    return {"thinking": {"type": kind, "budget_tokens": budget}}


def llm_config(choice: ModelChoice) -> LlmConfig:
    """The old full configuration, which V1 clients still read."""
    settings = choice.settings
    provider = choice.provider_type or choice.provider
    effective = {
        "handle": choice.handle,
        "context_window": choice.context_window,
        "max_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "effort" if provider == "anthropic" else "reasoning_effort": settings.reasoning_effort,
        "enable_reasoner": settings.thinking,
        "max_reasoning_tokens": settings.thinking_budget,
        "response_format": settings.response_format,
        "strict": settings.strict,
        "verbosity": settings.verbosity,
        "frequency_penalty": settings.frequency_penalty,
    }
    identity = {
        "model": choice.name,
        "model_endpoint_type": provider,
        "display_name": choice.name,
        "provider_name": choice.provider,
        "provider_category": "byok" if choice.provider_type else "base",
    }
    sent = {
        key: value
        for key, value in (choice.llm_config or {}).items()
        # Null means that the caller did not choose; LlmConfig does not allow it everywhere.
        if value is not None and key in LlmConfig.__struct_fields__ and key not in effective
    }
    return LlmConfig(
        **identity | sent | {key: value for key, value in effective.items() if value is not None}
    )


def embedding_config(handle: str | None, given: dict[str, Any] | None) -> EmbeddingConfig | None:
    if given is not None:
        known = EmbeddingConfig.__struct_fields__
        return EmbeddingConfig(**{key: value for key, value in given.items() if key in known})
    if handle is None:
        return None
    provider, _, name = handle.partition("/")
    return EmbeddingConfig(
        embedding_model=name,
        embedding_endpoint_type=provider,
        embedding_dim=_EMBEDDING_DIMENSIONS.get(name, _DEFAULT_EMBEDDING_DIMENSIONS),
        handle=handle,
    )
