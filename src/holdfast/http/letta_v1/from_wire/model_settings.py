"""The model and the settings that a caller asks for (wire-v1 §3.11)."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from pydantic import BaseModel

from holdfast.core.models import ModelSettings
from holdfast.http.letta_v1.schemas.agents import AgentCreate, AgentFields
from holdfast.http.letta_v1.schemas.model_settings import (
    LlmConfigInput,
    ModelSettingsInput,
)
from holdfast.usecases.model_choice import RequestedModel

# Settings that only V1's own agent loops and model servers used.
_V1_ONLY_KEYS = (
    "put_inner_thoughts_in_kwargs",
    "return_logprobs",
    "top_logprobs",
    "return_token_ids",
    "tool_call_parser",
)


_NO_EFFECT_WARNING = "{} has no effect here: it was for a server of V1's own."


def dump_sent_fields(part: BaseModel | None) -> dict[str, Any] | None:
    """Only the fields that the caller sent, as they were sent."""
    return part.model_dump(mode="json", exclude_unset=True) if part else None


def requested_model(body: AgentFields) -> RequestedModel:
    """The model that a create or an update asks for. ``llm_config``, the old form, wins over ``model``."""
    config = body.llm_config
    settings = core_settings(body.model_settings) if body.model_settings else None
    request = RequestedModel(
        handle=body.model,
        context_window=body.context_window_limit,
        settings=settings,
        single_settings=_top_level_settings(body),
        clear_max_output_tokens="max_tokens" in body.model_fields_set and body.max_tokens is None,
        unknown_settings=tuple(_warn_unsupported_settings(body.model_settings)),
        model_settings=dump_sent_fields(body.model_settings),
    )
    if config is None:
        return request
    return replace(
        request,
        handle=config.handle or f"{config.model_endpoint_type}/{config.model}",
        context_window=body.context_window_limit or config.context_window,
        settings=settings or _config_settings(config),
        endpoint=config.model_endpoint,
        unknown_settings=(*request.unknown_settings, *_warn_unsupported_config(config)),
        llm_config=dump_sent_fields(config),
    )


def _warn_unsupported_settings(given: ModelSettingsInput | None) -> Iterator[str]:
    """Settings for model servers that Holdfast does not support."""
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
        # The documented default, if any settings are sent (wire-v1 §3.11).
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
    """Whether to think and with which budget, in Anthropic's form or in Google's."""
    if given.thinking is not None:
        kind, budget = given.thinking.type, given.thinking.budget_tokens
        return _infer_thinking(None if kind is None else kind == "enabled", budget)
    if given.thinking_config is not None:
        config = given.thinking_config
        return _infer_thinking(config.include_thoughts, config.thinking_budget)
    return None, None


def _infer_thinking(thinking: bool | None, budget: int | None) -> tuple[bool | None, int | None]:
    """A budget alone means that the model should think."""
    return bool(budget) if thinking is None and budget is not None else thinking, budget


def _config_settings(config: LlmConfigInput) -> ModelSettings:
    # ``enable_reasoner`` is true in every configuration that V1 made, so only false has a meaning.
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
