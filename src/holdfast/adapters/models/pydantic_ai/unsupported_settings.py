"""Finds the settings that have no effect on a model, so that the caller is warned instead of them being dropped silently.

It follows what the wires and pydantic-ai do with each setting; a test compares the two. Importing this module
imports pydantic-ai (0.7 s): the catalogue does that when a caller chooses settings.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.profiles.google import GoogleModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile

from holdfast.adapters.models.handles import wire_name
from holdfast.adapters.models.providers.profiles import load_profile
from holdfast.adapters.models.providers.row import ProviderRow
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.models import ModelChoice
from holdfast.core.models import ModelSettings as Asked

# The name of a setting, and why it has no effect.
_Unsupported: TypeAlias = Iterator[tuple[str, str]]

_NO_SUCH_SETTING = "there is no such setting"
_NO_BUDGET = "the model has reasoning efforts and no budget"


def find_unsupported(choice: ModelChoice) -> tuple[str, ...]:
    """A sentence for each setting that has no effect on this model."""
    row = PROVIDERS.get(choice.provider)
    if row is None:
        return ()
    profile = load_profile(row)(choice.name) or ModelProfile()
    wire = wire_name(choice.provider, choice.name)
    found = [*_thinking(row, profile, choice), *_lacking(row, choice)]
    if wire in _RULES:
        found += _RULES[wire](profile, choice)
    return tuple(f"{setting} has no effect on {choice.handle}: {why}." for setting, why in found)


def _thinking(row: ProviderRow, profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    level = thinking_level(asked)
    able = profile.get("supports_thinking", False)
    if level and not able and not (asked.reasoning_effort and row.sends_any_effort):
        named = "thinking" if level is True else "reasoning_effort"
        yield named, "the model does not reason"
    if level is False and profile.get("thinking_always_enabled", False):
        yield "thinking", "the model always thinks; it is asked to think as little as possible"


def _lacking(row: ProviderRow, choice: ModelChoice) -> _Unsupported:
    for setting in row.lacks:
        if _is_asked(choice.settings, setting):
            yield setting, _NO_SUCH_SETTING


def _is_asked(asked: Asked, setting: str) -> bool:
    match setting:
        case "response_format":
            return _asks_for_format(asked)
        case "strict" | "thinking_budget":
            return bool(getattr(asked, setting))
        case _:
            return getattr(asked, setting) is not None


def _chat_rules(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    known = cast("OpenAIModelProfile", profile)
    yield from _sampling_while_reasoning(known, asked)
    if asked.thinking_budget and thinking_level(asked) is not False:
        yield "thinking_budget", _NO_BUDGET
    if asked.strict and not known.get("openai_supports_strict_tool_definition", True):
        yield "strict", "the server has no strict schemas"


def _responses_rules(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    yield from _chat_rules(profile, choice)
    already = {setting for setting, _ in _chat_rules(profile, choice)}
    if choice.settings.frequency_penalty is not None and "frequency_penalty" not in already:
        yield "frequency_penalty", _NO_SUCH_SETTING


def _sampling_while_reasoning(profile: OpenAIModelProfile, asked: Asked) -> _Unsupported:
    if not profile.get("openai_supports_reasoning", False):
        return
    efforts = profile.get("openai_reasoning_efforts")
    can_stop = (
        profile.get("openai_supports_reasoning_effort_none", False)
        if efforts is None
        else "none" in efforts
    )
    level = thinking_level(asked)
    idle = level is False or (level is None and not profile.get("thinking_enabled_by_default"))
    if can_stop and idle:
        return
    for setting in ("temperature", "frequency_penalty"):
        if getattr(asked, setting) is not None:
            yield setting, "a model that reasons does not take it"


def _messages_rules(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    known = cast("AnthropicModelProfile", profile)
    level = thinking_level(asked)
    if asked.temperature is not None and known.get("anthropic_disallows_sampling_settings", False):
        yield "temperature", "the model does not take it"
    elif asked.temperature is not None and level:
        yield "temperature", "the model does not take it while it thinks"
    budgets = not known.get("anthropic_disallows_budget_thinking", False)
    if asked.thinking_budget and level is not False and not budgets:
        yield "thinking_budget", _NO_BUDGET
    yield from _response_format(known, asked)


def _content_rules(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    known = cast("GoogleModelProfile", profile)
    if asked.reasoning_effort is not None and asked.thinking_budget:
        yield "reasoning_effort", "the thinking budget decides"
    if _asks_for_format(asked) and not known.get("google_supports_tool_combination", False):
        yield "response_format", "the model refuses one while it has tools"


def _converse_rules(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    if asked.thinking_budget and thinking_level(asked) is not False:
        yield "thinking_budget", _NO_BUDGET
    if asked.temperature is not None and profile.get("bedrock_disallows_sampling_settings"):
        yield "temperature", "the model does not take it"
    if asked.strict and not profile.get("bedrock_supports_strict_tool_definition"):
        yield "strict", "the model has no strict schemas"
    yield from _response_format(profile, asked)


def _response_format(profile: ModelProfile, asked: Asked) -> _Unsupported:
    if not _asks_for_format(asked):
        return
    if not profile.get("supports_json_schema_output", False):
        yield "response_format", "the model has no structured output"
    elif (asked.response_format or {}).get("type") == "json_object":
        yield "response_format", "it takes a json_schema, and not any JSON object"


def _asks_for_format(asked: Asked) -> bool:
    return (asked.response_format or {}).get("type") in ("json_object", "json_schema")


_RULES: dict[str, Callable[[ModelProfile, ModelChoice], _Unsupported]] = {
    "chat": _chat_rules,
    "responses": _responses_rules,
    "routed_chat": _chat_rules,
    "messages": _messages_rules,
    "content": _content_rules,
    "converse": _converse_rules,
}
