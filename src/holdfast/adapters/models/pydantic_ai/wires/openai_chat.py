"""The wire of OpenAI's chat completions API, which every compatible server speaks."""

import re
from typing import ClassVar, Literal, TypeAlias, cast

import httpx2
from openai.types import ReasoningEffort
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIChatModelSettings,
    OpenAIStreamedResponse,
)
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.basic_settings import with_basic_settings
from holdfast.adapters.models.pydantic_ai.wires.chat_stream import Chunk
from holdfast.adapters.models.pydantic_ai.wires.openai_provider import (
    build_openai_provider,
    schema_profile,
)
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.core.models import ModelSettings as Asked
from holdfast.ports.model import Question

_Verbosity: TypeAlias = Literal["low", "medium", "high"]

# The o-series refuses the parallel_tool_calls field.
_O_SERIES = re.compile(r"o\d")


class OpenAiChatWire:
    failures: ClassVar[SdkFailures] = SdkFailures()

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._row = account.row
        self._provider = build_openai_provider(account, http)

    def owns_thinking(self, thinking: Thinking) -> bool:
        # Encrypted thinking came over the responses wire.
        own = thinking.provider == self._row.name and not thinking.signature
        return own and self._row.resends_thinking

    def model(self, name: str, *, strict: bool) -> Model:
        return _ChatModel(name, provider=self._provider, profile=schema_profile(strict=strict))

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:  # noqa: ARG002 - see settings
        return None

    def settings(
        self,
        model: Model,
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        settings = with_basic_settings(OpenAIChatModelSettings(), asked)
        if asked.verbosity in ("low", "medium", "high"):
            settings["openai_text_verbosity"] = cast("_Verbosity", asked.verbosity)
        if asked.response_format is not None:
            settings["extra_body"] = {"response_format": asked.response_format}
        if question.tools and not _O_SERIES.match(model.model_name):
            settings["parallel_tool_calls"] = question.parallel_tool_calls
        level = thinking_level(asked)
        if level is not None:
            settings["thinking"] = level
        if self._row.sends_any_effort and not model.profile.get("supports_thinking", False):
            _set_effort(settings, asked)
        return settings


def _set_effort(settings: OpenAIChatModelSettings, asked: Asked) -> None:
    if asked.reasoning_effort is not None:
        settings["openai_reasoning_effort"] = cast("ReasoningEffort", asked.reasoning_effort)


class _StreamedChat(OpenAIStreamedResponse):
    """Counts tokens without looking up prices, and only those that the provider reported."""

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        if reported:
            super()._add_usage(usage, reported=True, cumulative=cumulative)

    def _map_usage(self, response: Chunk) -> RequestUsage:  # type: ignore[override]  # our chunks replace the SDK's
        counts = response.usage
        if counts is None:
            return _NO_USAGE
        read = counts.prompt_tokens_details or {}
        written = counts.completion_tokens_details or {}
        details = {
            name: value for name, value in {**read, **written}.items() if isinstance(value, int)
        }
        return RequestUsage(
            input_tokens=counts.prompt_tokens or 0,
            output_tokens=counts.completion_tokens or 0,
            cache_read_tokens=details.get("cached_tokens", 0),
            cache_write_tokens=details.get("cache_write_tokens", 0),
            details=details,
        )


class _ChatModel(OpenAIChatModel):
    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _StreamedChat


_NO_USAGE = RequestUsage()
