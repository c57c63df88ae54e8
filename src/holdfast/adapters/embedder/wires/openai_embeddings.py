"""The wire of OpenAI's embeddings API, which every compatible server speaks."""

from dataclasses import replace
from typing import ClassVar

import httpx2
from pydantic_ai.embeddings import EmbeddingModel
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.providers.openai import OpenAIProvider

from holdfast.adapters.embedder.wires.wire import MAX_TEXTS
from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.providers.row import Listing
from holdfast.adapters.models.pydantic_ai.errors import NO_SDK_FAILURES, SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.openai_client import build_direct_client


class OpenAiEmbeddingsWire:
    failures: ClassVar[SdkFailures] = NO_SDK_FAILURES
    waits_in_threads: ClassVar[bool] = False

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        client = build_direct_client(_with_version(account), http)
        self._provider = OpenAIProvider(openai_client=client)

    def model(self, name: str) -> EmbeddingModel:
        return OpenAIEmbeddingModel(name, provider=self._provider)

    def max_texts(self, name: str) -> int:  # noqa: ARG002 - the same for all
        return MAX_TEXTS


def _with_version(account: Account) -> Account:
    """The account with the /v1 that its address may lack."""
    if account.base_url is None or account.row.listing is not Listing.OPENAI_UNDER_V1:
        return account
    root = account.base_url.rstrip("/").removesuffix("/v1")
    return replace(account, base_url=f"{root}/v1")
