"""The wire of Google's generateContent API. Its SDK is an extra and reads the stream: Google sends sentences, not tokens."""

from typing import ClassVar

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.basic_settings import with_basic_settings
from holdfast.adapters.models.pydantic_ai.wires.google_provider import (
    GOOGLE_FAILURES,
    build_google_provider,
)
from holdfast.adapters.models.pydantic_ai.wires.response_format import to_output_definition
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class GoogleContentWire:
    failures: ClassVar[SdkFailures] = GOOGLE_FAILURES

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = build_google_provider(account, http)

    def owns_thinking(self, thinking: Thinking) -> bool:
        return thinking.provider == self._provider.name

    def model(self, name: str, *, strict: bool) -> Model:  # noqa: ARG002 - Google has no strict schemas
        return GoogleModel(name, provider=self._provider)

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:
        if question.tools and not model.profile.get("google_supports_tool_combination", False):
            # Older models refuse a response format together with tools.
            return None
        return to_output_definition(question.choice.settings, any_object={"type": "object"})

    def settings(
        self,
        model: Model,  # noqa: ARG002 - other wires need it
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        settings = with_basic_settings(GoogleModelSettings(), asked)
        level = thinking_level(asked)
        if level and asked.thinking_budget:
            settings["google_thinking_config"] = {
                "include_thoughts": True,
                "thinking_budget": asked.thinking_budget,
            }
        elif level is not None:
            settings["thinking"] = level
        return settings
