"""The wire of Bedrock's Converse API. Its SDK is an extra, waits in threads and has its own connection pool."""

from typing import ClassVar

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.bedrock import BedrockConverseModel, BedrockModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.basic_settings import with_basic_settings
from holdfast.adapters.models.pydantic_ai.wires.bedrock_provider import (
    BEDROCK_FAILURES,
    build_bedrock_provider,
)
from holdfast.adapters.models.pydantic_ai.wires.response_format import to_output_definition
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class BedrockConverseWire:
    failures: ClassVar[SdkFailures] = BEDROCK_FAILURES

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = build_bedrock_provider(account, http.timeout)

    def owns_thinking(self, thinking: Thinking) -> bool:
        return thinking.provider == "bedrock"

    def model(self, name: str, *, strict: bool) -> Model:  # noqa: ARG002 - set on the tools
        return BedrockConverseModel(name, provider=self._provider)

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:
        if not model.profile.get("supports_json_schema_output", False):
            return None
        return to_output_definition(question.choice.settings)

    def settings(
        self,
        model: Model,  # noqa: ARG002 - other wires need it
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        settings = with_basic_settings(BedrockModelSettings(cache=True), asked)
        level = thinking_level(asked)
        if level is not None:
            settings["thinking"] = level
        return settings
