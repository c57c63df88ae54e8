"""What was asked of a model and cannot be done: said when it is asked for, rather than dropped in silence.

It follows what the wires and pydantic-ai do with each setting; a test compares the two. Importing this module
imports pydantic-ai (0.7 s): the catalogue does that when a caller asks for something.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TypeAlias, cast

from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.anthropic import AnthropicModelProfile, anthropic_model_profile
from pydantic_ai.profiles.google import GoogleModelProfile, google_model_profile
from pydantic_ai.profiles.openai import OpenAIModelProfile, openai_model_profile

from holdfast.adapters.models.handles import wire_name
from holdfast.adapters.models.providers import table
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.models import ModelChoice
from holdfast.core.models import ModelSettings as Asked

# The name of a setting, and why it has no effect.
_Unsupported: TypeAlias = Iterator[tuple[str, str]]

_NO_SUCH_SETTING = "there is no such setting"
_NO_BUDGET = "thinking has efforts here and no budget"


def find_unsupported(choice: ModelChoice) -> tuple[str, ...]:
    """A sentence for each setting that this model does not heed."""
    if choice.provider not in PROVIDERS:
        return ()
    profile = _profile(choice)
    found = [
        *_thinking(profile, choice),
        *_RULES[wire_name(choice.provider, choice.name)](profile, choice),
    ]
    return tuple(f"{setting} has no effect on {choice.handle}: {why}." for setting, why in found)


def _profile(choice: ModelChoice) -> ModelProfile:
    """What pydantic-ai knows of the model. An SDK that is needed to know it has been loaded for the provider."""
    match choice.provider:
        case table.OPENAI:
            found: ModelProfile | None = openai_model_profile(choice.name)
        case table.ANTHROPIC:
            found = anthropic_model_profile(choice.name)
        case table.GOOGLE | table.VERTEX:
            found = google_model_profile(choice.name)
        case table.MISTRAL | table.BEDROCK | table.OPENROUTER:
            found = _load_sdk_profile(choice.provider)(choice.name)
        case _:
            compatible = import_module(
                "holdfast.adapters.models.pydantic_ai.wires.compatible_profiles"
            )
            found = compatible.PROFILES[choice.provider](choice.name)
    return found or ModelProfile()


def _load_sdk_profile(provider: str) -> Callable[[str], ModelProfile | None]:
    module = import_module(f"pydantic_ai.providers.{provider}")
    names = {
        table.MISTRAL: "MistralProvider",
        table.BEDROCK: "BedrockProvider",
        table.OPENROUTER: "OpenRouterProvider",
    }
    known = getattr(module, names[provider]).model_profile
    return cast("Callable[[str], ModelProfile | None]", known)


def _thinking(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    level = thinking_level(asked)
    able = profile.get("supports_thinking", False)
    if level and not able and not (asked.reasoning_effort and _effort_is_always_sent(choice)):
        named = "thinking" if level is True else "reasoning_effort"
        yield named, "the model does not reason"
    if level is False and profile.get("thinking_always_enabled", False):
        yield "thinking", "the model cannot do without; it thinks as little as it can"


def _effort_is_always_sent(choice: ModelChoice) -> bool:
    """Whether the effort goes to the provider, whatever the model's name says."""
    speaks = PROVIDERS[choice.provider].wires
    return speaks[0] in ("chat", "openrouter") and choice.provider != table.OPENAI


def _openai_chat(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    known = cast("OpenAIModelProfile", profile)
    yield from _sampling_while_reasoning(known, asked)
    if asked.thinking_budget and thinking_level(asked) is not False:
        yield "thinking_budget", _NO_BUDGET
    if asked.strict and not known.get("openai_supports_strict_tool_definition", True):
        yield "strict", "the server knows no strict schemas"


def _openai_responses(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    yield from _openai_chat(profile, choice)
    already = {setting for setting, _ in _openai_chat(profile, choice)}
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


def _anthropic(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
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
    if asked.verbosity is not None:
        yield "verbosity", _NO_SUCH_SETTING
    if asked.frequency_penalty is not None:
        yield "frequency_penalty", _NO_SUCH_SETTING
    yield from _response_format(known, asked, any_object=False)


def _google(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    known = cast("GoogleModelProfile", profile)
    if asked.verbosity is not None:
        yield "verbosity", _NO_SUCH_SETTING
    if asked.reasoning_effort is not None and asked.thinking_budget:
        yield "reasoning_effort", "the thinking budget says it"
    if _asks_for_format(asked) and not known.get("google_supports_tool_combination", False):
        yield "response_format", "the model refuses one while it has tools"


def _mistral(_profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    for setting in ("strict", "verbosity", "thinking_budget"):
        if getattr(asked, setting):
            yield setting, _NO_SUCH_SETTING
    if _asks_for_format(asked):
        yield "response_format", _NO_SUCH_SETTING


def _bedrock(profile: ModelProfile, choice: ModelChoice) -> _Unsupported:
    asked = choice.settings
    for setting in ("verbosity", "frequency_penalty"):
        if getattr(asked, setting) is not None:
            yield setting, _NO_SUCH_SETTING
    if asked.thinking_budget and thinking_level(asked) is not False:
        yield "thinking_budget", _NO_BUDGET
    if asked.temperature is not None and profile.get("bedrock_disallows_sampling_settings"):
        yield "temperature", "the model does not take it"
    if asked.strict and not profile.get("bedrock_supports_strict_tool_definition"):
        yield "strict", "the model knows no strict schemas"
    yield from _response_format(profile, asked, any_object=False)


def _response_format(profile: ModelProfile, asked: Asked, *, any_object: bool) -> _Unsupported:
    if not _asks_for_format(asked):
        return
    if not profile.get("supports_json_schema_output", False):
        yield "response_format", "the model knows no structured output"
    elif (asked.response_format or {}).get("type") == "json_object" and not any_object:
        yield "response_format", "an object of any form cannot be asked for; json_schema can"


def _asks_for_format(asked: Asked) -> bool:
    return (asked.response_format or {}).get("type") in ("json_object", "json_schema")


_RULES: dict[str, Callable[[ModelProfile, ModelChoice], _Unsupported]] = {
    "chat": _openai_chat,
    "responses": _openai_responses,
    "openrouter": _openai_chat,
    "messages": _anthropic,
    "content": _google,
    "mistral": _mistral,
    "converse": _bedrock,
}
