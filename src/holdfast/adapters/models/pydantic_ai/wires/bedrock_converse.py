"""The wire of Bedrock's Converse API. Its SDK is an extra, waits in threads and has its own connection pool."""

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

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.basic_settings import with_basic_settings
from holdfast.adapters.models.pydantic_ai.wires.response_format import to_output_definition
from holdfast.adapters.models.pydantic_ai.wires.thinking import thinking_level
from holdfast.core.messages import Thinking
from holdfast.ports.model import Question

# One for each answer in progress.
_CONNECTIONS = 200


class BedrockConverseWire:
    failures: ClassVar[SdkFailures] = SdkFailures((BotoCoreError,))

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = BedrockProvider(bedrock_client=_build_client(account, http.timeout))

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


@lru_cache(maxsize=1)
def _shared_loader() -> Loader:
    """botocore's descriptions of services. Reading them takes most of the time that a client takes to build."""
    return create_loader()


class _ApiKeySession(Session):  # type: ignore[misc]  # botocore has no types
    """A session that sends a Bedrock API key instead of signing requests."""

    def __init__(self, api_key: str) -> None:
        super().__init__()
        self._api_key = api_key

    def get_auth_token(self, **_: Any) -> FrozenAuthToken:
        return FrozenAuthToken(self._api_key)

    def get_credentials(self) -> None:
        return None


def _build_client(account: Account, timeout: httpx2.Timeout) -> BaseClient:
    config = Config(
        # The engine retries.
        retries={"total_max_attempts": 1, "mode": "standard"},
        read_timeout=timeout.read,
        connect_timeout=timeout.connect,
        max_pool_connections=_CONNECTIONS,
        signature_version="bearer" if account.api_key else None,
    )
    inner = _ApiKeySession(account.api_key) if account.api_key else Session()
    inner.register_component("data_loader", _shared_loader())
    if account.api_key:
        session = boto3.Session(botocore_session=inner)
    else:
        session = boto3.Session(
            botocore_session=inner,
            aws_access_key_id=account.options["access_key"],
            aws_secret_access_key=account.options["secret_key"],
            aws_session_token=account.options["session_token"],
        )
    region = account.options["region"]
    return session.client(
        "bedrock-runtime", region_name=region, config=config, endpoint_url=account.base_url
    )
