"""The wire of Mistral's chat completions API. Its SDK is an extra and reads the stream."""

from typing import ClassVar

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.mistral import MistralModel, MistralModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.mistral import MistralProvider
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.basic_settings import with_basic_settings
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class MistralChatWire:
    # The SDK raises it for an answer that is not a stream.
    failures: ClassVar[SdkFailures] = SdkFailures((httpx2.StreamError,), (httpx2.StreamError,))

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        root = (account.base_url or account.row.address or "").rstrip("/").removesuffix("/v1")
        self._provider = MistralProvider(api_key=account.api_key, base_url=root, http_client=http)

    def owns_thinking(self, thinking: Thinking) -> bool:
        return thinking.provider == "mistral"

    def model(self, name: str, *, strict: bool) -> Model:  # noqa: ARG002 - Mistral has no strict schemas
        return MistralModel(name, provider=self._provider)

    def output_definition(self, model: Model, question: Question) -> OutputObjectDefinition | None:  # noqa: ARG002 - Mistral has no response format
        return None

    def settings(
        self,
        model: Model,  # noqa: ARG002 - other wires need it
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        # The engine retries.
        settings = with_basic_settings(MistralModelSettings(max_retries=0), asked)
        if question.tools:
            settings["parallel_tool_calls"] = question.parallel_tool_calls
        level = thinking_level(asked)
        if level is not None:
            settings["thinking"] = level
        return settings
