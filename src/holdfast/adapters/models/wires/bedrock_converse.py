"""Bedrock's Converse. Its SDK is an extra, waits in threads, and has a connection pool of its own."""

from typing import ClassVar

import httpx2
from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.bedrock import BedrockConverseModel, BedrockModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.wires.forms import asked_form
from holdfast.adapters.models.wires.plain import with_plain
from holdfast.adapters.models.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question


class BedrockConverseWire:
    failures: ClassVar[tuple[type[Exception], ...]] = (BotoCoreError,)

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = _provider(account, http.timeout)
        _never_again(self._provider.client)

    def thought(self, thinking: Thinking) -> bool:
        return thinking.provider == "bedrock"

    def model(self, name: str, *, strict: bool) -> Model:  # noqa: ARG002 - said with the tools
        return BedrockConverseModel(name, provider=self._provider)

    def form(self, model: Model, question: Question) -> OutputObjectDefinition | None:
        if not model.profile.get("supports_json_schema_output", False):
            return None
        return asked_form(question.choice.settings)

    def settings(
        self,
        model: Model,  # noqa: ARG002 - other wires need it
        question: Question,
        history: list[ModelMessage],  # noqa: ARG002 - other wires need it
    ) -> ModelSettings:
        asked = question.choice.settings
        settings = with_plain(BedrockModelSettings(cache=True), asked)
        level = thinking_level(asked)
        if level is not None:
            settings["thinking"] = level
        return settings


def _provider(account: Account, timeout: httpx2.Timeout) -> BedrockProvider:
    """With a key of Bedrock's own there is no need to sign."""
    if account.api_key:
        return BedrockProvider(
            api_key=account.api_key,
            region_name=account.more["region"],
            base_url=account.base_url,
            aws_read_timeout=timeout.read,
            aws_connect_timeout=timeout.connect,
        )
    return BedrockProvider(
        aws_access_key_id=account.more["access"],
        aws_secret_access_key=account.more["secret"],
        aws_session_token=account.more["session"],
        region_name=account.more["region"],
        base_url=account.base_url,
        aws_read_timeout=timeout.read,
        aws_connect_timeout=timeout.connect,
    )


def _never_again(client: BaseClient) -> None:
    """botocore tries up to five times; the engine does that."""
    client.meta.events.unregister("needs-retry.bedrock-runtime")
