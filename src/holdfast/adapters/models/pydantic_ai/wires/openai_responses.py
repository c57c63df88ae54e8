"""The wire of OpenAI's responses API, for its reasoning models. Nothing is stored at OpenAI: thinking is received
encrypted and sent back encrypted."""

import re
from typing import Any, ClassVar

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.basic_settings import with_basic_settings
from holdfast.adapters.models.pydantic_ai.wires.openai_provider import (
    build_openai_provider,
    schema_profile,
)
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.core.models import ModelSettings as Asked
from holdfast.ports.model import Question

# The o-series refuses the parallel_tool_calls field, and o1 has no summaries of its thinking.
_O_SERIES = re.compile(r"(ft:)?o\d")
_WITHOUT_SUMMARIES = re.compile(r"(ft:)?o1")


class OpenAiResponsesWire:
    failures: ClassVar[SdkFailures] = SdkFailures()

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._name = account.provider
        self._provider = build_openai_provider(account, http)

    def owns_thinking(self, thinking: Thinking) -> bool:
        return thinking.provider == self._name and bool(thinking.signature)

    def model(self, name: str, *, strict: bool) -> Model:
        return OpenAIResponsesModel(
            name, provider=self._provider, profile=schema_profile(strict=strict)
        )

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:  # noqa: ARG002 - see settings
        return None

    def settings(
        self,
        model: Model,
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        settings = with_basic_settings(OpenAIResponsesModelSettings(openai_store=False), asked)
        if question.tools and not _O_SERIES.match(model.model_name):
            settings["parallel_tool_calls"] = question.parallel_tool_calls
        text = _text_options(asked)
        if text:
            settings["extra_body"] = {"text": text}
        level = thinking_level(asked)
        if level is not None:
            settings["thinking"] = level
        if level is not False and not _WITHOUT_SUMMARIES.match(model.model_name):
            settings["openai_reasoning_summary"] = "auto"
        return settings


def _text_options(asked: Asked) -> dict[str, Any]:
    """The ``text`` field. Callers write a format as in chat completions, whose schema is one level deeper."""
    text: dict[str, Any] = {}
    if asked.verbosity in ("low", "medium", "high"):
        text["verbosity"] = asked.verbosity
    if asked.response_format is not None:
        schema = asked.response_format.get("json_schema")
        inner = schema if isinstance(schema, dict) else {}
        text["format"] = {
            **inner,
            **{k: v for k, v in asked.response_format.items() if v != schema},
        }
    return text
