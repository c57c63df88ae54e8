"""The wire of OpenRouter: chat completions with its own fields for thinking."""

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.wires.openai_chat import OpenAiChatWire
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class OpenRouterWire(OpenAiChatWire):
    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        super().__init__(account, http)
        client = AsyncOpenAI(
            api_key=account.api_key,
            base_url=account.base_url or account.row.address,
            http_client=http,
            # The engine retries.
            max_retries=0,
        )
        self._router = OpenRouterProvider(openai_client=client)

    def owns_thinking(self, thinking: Thinking) -> bool:
        return thinking.provider == self._row.name

    def model(self, name: str, *, strict: bool) -> Model:
        del strict
        return OpenRouterModel(name, provider=self._router)

    def settings(
        self, model: Model, question: Question, history: list[ModelMessage]
    ) -> ModelSettings:
        settings = super().settings(model, question, history)
        # Some of the providers behind it cache only on request.
        settings["cache"] = True
        return settings
