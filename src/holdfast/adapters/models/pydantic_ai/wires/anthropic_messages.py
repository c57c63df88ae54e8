"""The wire of Anthropic's messages API."""

from typing import ClassVar, cast

import httpx2
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.anthropic import (
    ANTHROPIC_THINKING_BUDGET_MAP,
    AnthropicModelProfile,
)
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.messages_stream import DirectAnthropic
from holdfast.adapters.models.pydantic_ai.wires.response_format import to_output_definition
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.core.models import ModelSettings as Asked
from holdfast.ports.model import Question

# Anthropic refuses a smaller budget.
_MIN_BUDGET_TOKENS = 1024


class AnthropicMessagesWire:
    failures: ClassVar[SdkFailures] = SdkFailures()

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        client = DirectAnthropic(
            api_key=account.api_key,
            base_url=account.base_url or (account.row.address or "").removesuffix("/v1"),
            http_client=http,
            # The engine retries.
            max_retries=0,
        )
        self._provider = AnthropicProvider(anthropic_client=client)

    def owns_thinking(self, thinking: Thinking) -> bool:
        return thinking.provider == "anthropic"

    def model(self, name: str, *, strict: bool) -> Model:
        # Only strict schemas need rewriting, and rewriting costs 0.1 ms per tool and request.
        profile = None if strict else AnthropicModelProfile(json_schema_transformer=None)
        return AnthropicModel(name, provider=self._provider, profile=profile)

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:
        if not model.profile.get("supports_json_schema_output", False):
            return None
        return to_output_definition(question.choice.settings)

    def settings(
        self, model: Model, question: Question, history: list[ModelMessage]
    ) -> ModelSettings:
        asked = question.choice.settings
        # Cache points at the end of the tools, of the system message and of the conversation.
        settings = AnthropicModelSettings(
            anthropic_cache_tool_definitions=True,
            anthropic_cache_instructions=True,
            anthropic_cache_messages=True,
        )
        if question.tools:
            settings["parallel_tool_calls"] = question.parallel_tool_calls
        if asked.max_output_tokens is not None:
            settings["max_tokens"] = asked.max_output_tokens
        thinks = _set_thinking(settings, _profile(model), asked, history)
        if asked.temperature is not None and not thinks:
            # With thinking, Anthropic accepts no temperature but 1.
            settings["temperature"] = asked.temperature
        return settings


def _set_thinking(
    settings: AnthropicModelSettings,
    profile: AnthropicModelProfile,
    asked: Asked,
    history: list[ModelMessage],
) -> bool:
    """Switch thinking on or off as asked. Returns whether it is on."""
    level = thinking_level(asked)
    if level is None:
        return False
    if level is False or not _may_think(history):
        settings["thinking"] = False
        return False
    adaptive = profile.get("anthropic_supports_adaptive_thinking", False)
    if profile.get("anthropic_disallows_budget_thinking", False) or (
        adaptive and not asked.thinking_budget
    ):
        settings["thinking"] = level
    else:
        budget = asked.thinking_budget or ANTHROPIC_THINKING_BUDGET_MAP[level]
        _set_budget(settings, max(budget, _MIN_BUDGET_TOKENS))
    return True


def _profile(model: Model) -> AnthropicModelProfile:
    return cast("AnthropicModelProfile", model.profile)


def _set_budget(settings: AnthropicModelSettings, budget: int) -> None:
    settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": budget}
    limit = settings.get("max_tokens")
    if limit is not None and limit <= budget:
        # Anthropic counts thinking as output: make room for both.
        settings["max_tokens"] = budget + limit


def _may_think(history: list[ModelMessage]) -> bool:
    """Not in a tool loop that another model began, or this one without thinking: Anthropic refuses that."""
    began: ModelResponse | None = None
    for message in reversed(history):
        if isinstance(message, ModelResponse):
            began = message
        elif not any(isinstance(part, ToolReturnPart) for part in message.parts):
            break
    if began is None or not any(isinstance(part, ToolCallPart) for part in began.parts):
        return True
    first = began.parts[0]
    return isinstance(first, ThinkingPart) and bool(first.signature)
