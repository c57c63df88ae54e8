"""Models between wire and core: what a caller asks for, and how a choice is shown (wire-v1 §3.11)."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from pydantic import BaseModel

from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.http.letta_v1.schemas.agents import AgentCreate, AgentFields
from holdfast.http.letta_v1.schemas.model_settings import (
    LlmConfigInput,
    ModelSettingsInput,
)
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig, LlmConfig
from holdfast.usecases.model_choice import RequestedModel

_GOOGLE = ("google_ai", "google_vertex")
# Keys of model_settings that are shown as they are in force, whatever was sent.
_EFFECTIVE_KEYS = frozenset(ModelSettingsInput.model_fields) - {"provider_type"}
# What only V1's own loops and servers did with a configuration.
_V1_ONLY_KEYS = (
    "put_inner_thoughts_in_kwargs",
    "return_logprobs",
    "top_logprobs",
    "return_token_ids",
    "tool_call_parser",
)
_NO_EFFECT_WARNING = "{} has no effect here: it was for a server of V1's own."
_EMBEDDING_DIMENSIONS = {"text-embedding-3-large": 3072}
_DEFAULT_EMBEDDING_DIMENSIONS = 1536


def dump_sent_fields(part: BaseModel | None) -> dict[str, Any] | None:
    """The caller's own words: what was sent and nothing else."""
    return part.model_dump(mode="json", exclude_unset=True) if part else None


def model_wish(body: AgentFields) -> RequestedModel:
    """What create or update says about the model. The old full configuration wins over ``model``."""
    config = body.llm_config
    settings = core_settings(body.model_settings) if body.model_settings else None
    told = RequestedModel(
        handle=body.model,
        context_window=body.context_window_limit,
        settings=settings,
        single_settings=_top_level_settings(body),
        clear_max_output_tokens="max_tokens" in body.model_fields_set and body.max_tokens is None,
        unknown_settings=tuple(_warn_unsupported_settings(body.model_settings)),
        model_settings=dump_sent_fields(body.model_settings),
    )
    if config is None:
        return told
    return replace(
        told,
        handle=config.handle or f"{config.model_endpoint_type}/{config.model}",
        context_window=body.context_window_limit or config.context_window,
        settings=settings or _config_settings(config),
        endpoint=config.model_endpoint,
        unknown_settings=(*told.unknown_settings, *_warn_unsupported_config(config)),
        llm_config=dump_sent_fields(config),
    )


def _warn_unsupported_settings(given: ModelSettingsInput | None) -> Iterator[str]:
    """V1's settings for servers that are not spoken to here."""
    if given is None:
        return
    if given.tool_call_parser is not None:
        yield _NO_EFFECT_WARNING.format("model_settings.tool_call_parser")
    if given.thinking is not None and given.thinking.clear_thinking is not None:
        yield _NO_EFFECT_WARNING.format("model_settings.thinking.clear_thinking")


def _warn_unsupported_config(config: LlmConfigInput) -> Iterator[str]:
    for name in _V1_ONLY_KEYS:
        if getattr(config, name):
            yield _NO_EFFECT_WARNING.format(f"llm_config.{name}")
    for name in config.model_extra or ():
        yield f"llm_config.{name} is not known here and has no effect."


def core_settings(given: ModelSettingsInput) -> ModelSettings:
    thinking, budget = _thinking_settings(given)
    parallel = given.parallel_tool_calls
    return ModelSettings(
        max_output_tokens=given.max_output_tokens,
        temperature=given.temperature,
        # Whoever sends settings gets their documented default (wire-v1 §3.11).
        parallel_tool_calls=True if parallel is None else parallel,
        reasoning_effort=(given.reasoning and given.reasoning.reasoning_effort) or given.effort,
        thinking=thinking,
        thinking_budget=budget,
        response_format=dump_sent_fields(given.response_format or given.response_schema),
        strict=given.strict,
        verbosity=given.verbosity,
        frequency_penalty=given.frequency_penalty,
    )


def _thinking_settings(given: ModelSettingsInput) -> tuple[bool | None, int | None]:
    """Whether to think and how much, as Anthropic and its likes say it, or as Google does."""
    if given.thinking is not None:
        kind, budget = given.thinking.type, given.thinking.budget_tokens
        return _infer_thinking(None if kind is None else kind == "enabled", budget)
    if given.thinking_config is not None:
        config = given.thinking_config
        return _infer_thinking(config.include_thoughts, config.thinking_budget)
    return None, None


def _infer_thinking(thinking: bool | None, budget: int | None) -> tuple[bool | None, int | None]:
    """Whoever names a budget and nothing else means that it be used."""
    return bool(budget) if thinking is None and budget is not None else thinking, budget


def _config_settings(config: LlmConfigInput) -> ModelSettings:
    # ``enable_reasoner`` is true in every configuration that V1 ever made, so only false says something.
    thinks = False if config.enable_reasoner is False else bool(config.max_reasoning_tokens) or None
    return ModelSettings(
        max_output_tokens=config.max_tokens,
        temperature=config.temperature,
        parallel_tool_calls=config.parallel_tool_calls,
        reasoning_effort=config.reasoning_effort or config.effort,
        thinking=thinks,
        thinking_budget=config.max_reasoning_tokens or None,
        response_format=dump_sent_fields(config.response_format),
        strict=config.strict,
        verbosity=config.verbosity,
        frequency_penalty=config.frequency_penalty,
    )


def _top_level_settings(body: AgentFields) -> ModelSettings:
    thinking = body.reasoning
    budget = None
    if isinstance(body, AgentCreate):
        budget = body.max_reasoning_tokens or None
        if thinking is None:
            thinking = False if body.enable_reasoner is False else (True if budget else None)
    return ModelSettings(
        max_output_tokens=body.max_tokens,
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=dump_sent_fields(body.response_format),
        thinking=thinking,
        thinking_budget=budget,
    )


def model_settings(choice: ModelChoice) -> dict[str, Any]:
    """The provider's defaults, what the caller sent, and on top what is in force."""
    provider = choice.provider_type or choice.provider
    kept = {
        key: value
        for key, value in (choice.model_settings or {}).items()
        if key not in _EFFECTIVE_KEYS
    }
    return _default_settings(provider) | kept | _effective_settings(provider, choice.settings)


def _default_settings(provider: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "provider_type": provider,
        "max_output_tokens": 4096,
        "parallel_tool_calls": True,
        "temperature": 1.0,
    }
    match provider:
        case "openai":
            # What V1 showed for an agent that named a model and nothing else.
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
    in_force = {
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
    named = {
        "model": choice.name,
        "model_endpoint_type": provider,
        "display_name": choice.name,
        "provider_name": choice.provider,
        "provider_category": "byok" if choice.provider_type else "base",
    }
    kept = {
        key: value
        for key, value in (choice.llm_config or {}).items()
        # Whoever sends null leaves it open; what is shown has no room for it.
        if value is not None and key in LlmConfig.__struct_fields__ and key not in in_force
    }
    return LlmConfig(
        **named | kept | {key: value for key, value in in_force.items() if value is not None}
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
