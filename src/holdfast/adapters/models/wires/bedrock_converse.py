"""Bedrock's Converse. Its SDK is an extra, waits in threads, and has a connection pool of its own."""

from functools import lru_cache
from typing import Any, ClassVar

import boto3
import httpx2
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session
from botocore.tokens import FrozenAuthToken
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.bedrock import BedrockConverseModel, BedrockModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.errors import SdkFailures
from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.wires.forms import asked_form
from holdfast.adapters.models.wires.plain import with_plain
from holdfast.adapters.models.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question

# One for each answer that is under way.
_CONNECTIONS = 200


class BedrockConverseWire:
    failures: ClassVar[SdkFailures] = SdkFailures((BotoCoreError,))

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = BedrockProvider(bedrock_client=_client(account, http.timeout))

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


@lru_cache(maxsize=1)
def _loader() -> Loader:
    """botocore's descriptions of services: reading them takes longer than anything else here."""
    return create_loader()


class _KeyedSession(Session):  # type: ignore[misc]  # botocore brings no types
    """With a key of Bedrock's own there is no need to sign."""

    def __init__(self, api_key: str) -> None:
        super().__init__()
        self._api_key = api_key

    def get_auth_token(self, **_: Any) -> FrozenAuthToken:
        return FrozenAuthToken(self._api_key)

    def get_credentials(self) -> None:
        return None


def _client(account: Account, timeout: httpx2.Timeout) -> BaseClient:
    config = Config(
        # The engine retries.
        retries={"total_max_attempts": 1, "mode": "standard"},
        read_timeout=timeout.read,
        connect_timeout=timeout.connect,
        max_pool_connections=_CONNECTIONS,
        signature_version="bearer" if account.api_key else None,
    )
    inner = _KeyedSession(account.api_key) if account.api_key else Session()
    inner.register_component("data_loader", _loader())
    if account.api_key:
        session = boto3.Session(botocore_session=inner)
    else:
        session = boto3.Session(
            botocore_session=inner,
            aws_access_key_id=account.more["access"],
            aws_secret_access_key=account.more["secret"],
            aws_session_token=account.more["session"],
        )
    region = account.more["region"]
    return session.client(
        "bedrock-runtime", region_name=region, config=config, endpoint_url=account.base_url
    )
