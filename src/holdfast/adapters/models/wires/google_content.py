"""Google's generateContent. Its SDK is an extra, and reads the stream: Google sends sentences, not tokens."""

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class GoogleContentWire:
    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = GoogleProvider(
            api_key=account.api_key,
            base_url=account.base_url or "https://generativelanguage.googleapis.com",
            http_client=http,
        )

    def thought(self, thinking: Thinking) -> bool:
        return thinking.provider == "google"

    def model(self, name: str, *, strict: bool) -> Model:  # noqa: ARG002 - Google knows no strict schemas
        return GoogleModel(name, provider=self._provider)

    def settings(
        self,
        model: Model,  # noqa: ARG002 - other wires need it
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        settings = GoogleModelSettings()
        if asked.max_output_tokens is not None:
            settings["max_tokens"] = asked.max_output_tokens
        if asked.temperature is not None:
            settings["temperature"] = asked.temperature
        level = thinking_level(asked)
        if level and asked.thinking_budget:
            settings["google_thinking_config"] = {
                "include_thoughts": True,
                "thinking_budget": asked.thinking_budget,
            }
        elif level is not None:
            settings["thinking"] = level
        return settings
