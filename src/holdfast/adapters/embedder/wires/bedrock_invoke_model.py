"""The wire of Bedrock's InvokeModel API, for the embedding models of Amazon and Cohere. Its SDK is an extra."""

from typing import ClassVar, Final

import httpx2
from botocore.exceptions import BotoCoreError, HTTPClientError
from pydantic_ai.embeddings import EmbeddingModel
from pydantic_ai.embeddings.bedrock import BedrockEmbeddingModel, BedrockEmbeddingSettings

from holdfast.adapters.embedder.wires.wire import MAX_TEXTS
from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.errors import SdkFailures
from holdfast.adapters.models.pydantic_ai.wires.bedrock_provider import build_bedrock_provider

# The only ones that accept several texts at once.
_COHERE: Final = "cohere."


class BedrockInvokeModelWire:
    # pydantic-ai translates what fails before the body of an answer is read.
    failures: ClassVar[SdkFailures] = SdkFailures((BotoCoreError,), transient=(HTTPClientError,))
    waits_in_threads: ClassVar[bool] = True

    def __init__(self, account: Account, http: httpx2.AsyncClient) -> None:
        self._provider = build_bedrock_provider(account, http.timeout)

    def model(self, name: str) -> EmbeddingModel:
        settings = BedrockEmbeddingSettings(truncate=True)
        return BedrockEmbeddingModel(name, provider=self._provider, settings=settings)

    def max_texts(self, name: str) -> int:
        return MAX_TEXTS if _COHERE in name else 1
