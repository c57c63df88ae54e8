"""pydantic-ai's provider for Bedrock. Its SDK is an extra, waits in threads and has its own connection pool."""

from functools import lru_cache
from typing import Any

import boto3
import httpx2
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session
from botocore.tokens import FrozenAuthToken
from pydantic_ai.providers.bedrock import BedrockProvider

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures

BEDROCK_FAILURES = SdkFailures((BotoCoreError,))

# One for each answer in progress.
_CONNECTIONS = 200


def build_bedrock_provider(account: Account, timeout: httpx2.Timeout) -> BedrockProvider:
    return BedrockProvider(bedrock_client=_build_client(account, timeout))


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
