"""An OpenAI client for streams and embeddings, with little work per message and token.

The SDK transforms every message by its type annotations before it sends it (0.2 ms a message) and prepares for cases
that do not occur here (0.5 ms a request). What pydantic-ai passes in is JSON already, so it is sent as it is.
Headers, errors and authentication stay the SDK's.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec
from openai import APIConnectionError, APITimeoutError, AsyncOpenAI, NotGiven, Omit
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.resources.embeddings import AsyncEmbeddings
from openai.resources.responses import AsyncResponses

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.pydantic_ai.wires.chat_stream import ChunkStream
from holdfast.adapters.models.pydantic_ai.wires.embedding_list import read_embeddings
from holdfast.adapters.models.pydantic_ai.wires.responses_stream import ResponseStream

# In a dated version of Azure's API these are below the deployment.
_OF_A_DEPLOYMENT: Final = ("chat/completions", "embeddings")


def build_direct_client(account: Account, http: httpx2.AsyncClient) -> "DirectOpenAI":
    if account.provider == "azure":
        return _DirectAzure(account, http)
    base_url = account.base_url or account.row.address or ""
    return DirectOpenAI(api_key=account.api_key, base_url=base_url, http_client=http)


class DirectOpenAI(AsyncOpenAI):
    """It does not retry: the engine does."""

    def __init__(self, *, api_key: str, base_url: str, http_client: httpx2.AsyncClient) -> None:
        super().__init__(api_key=api_key, base_url=base_url, http_client=http_client, max_retries=0)
        self._http = http_client

    @cached_property
    def chat(self) -> AsyncChat:
        return _DirectChat(self)

    @cached_property
    def responses(self) -> AsyncResponses:
        return _DirectResponses(self)

    @cached_property
    def embeddings(self) -> AsyncEmbeddings:
        return _DirectEmbeddings(self)

    @cached_property
    def _headers(self) -> dict[str, str]:
        every = self.default_headers | self.auth_headers
        return {name: value for name, value in every.items() if isinstance(value, str)}

    def url_for(self, path: str, _body: Mapping[str, Any]) -> httpx2.URL | str:
        return self.base_url.join(path)

    async def send(self, path: str, fields: Mapping[str, Any]) -> httpx2.Response:
        """The response with its body unread. Raises the SDK's errors."""
        body = {
            name: value for name, value in fields.items() if not isinstance(value, Omit | NotGiven)
        }
        # The HTTP client has its own timeout.
        body.pop("timeout", None)
        headers = body.pop("extra_headers", None) or {}
        body |= body.pop("extra_body", None) or {}
        request = self._http.build_request(
            "POST",
            self.url_for(path, body),
            headers={**self._headers, **headers},
            content=msgspec.json.encode(body),
        )
        try:
            response = await self._http.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise APITimeoutError(request=request) from error
        except httpx2.RequestError as error:
            raise APIConnectionError(request=request) from error
        if not response.is_success:
            await response.aread()
            raise self._make_status_error_from_response(response)
        return response


class _DirectAzure(DirectOpenAI):
    """Azure OpenAI: another header for the key, and another path for a dated version of its API."""

    def __init__(self, account: Account, http_client: httpx2.AsyncClient) -> None:
        self._root = (account.base_url or "").rstrip("/").removesuffix("/openai/v1")
        self._api_version = account.options.get("api_version")
        super().__init__(
            api_key=account.api_key, base_url=f"{self._root}/openai/v1", http_client=http_client
        )

    @property
    def auth_headers(self) -> dict[str, str]:
        return {"api-key": self.api_key}

    def url_for(self, path: str, body: Mapping[str, Any]) -> httpx2.URL | str:
        if not self._api_version:
            return super().url_for(path, body)
        resource = path
        if path in _OF_A_DEPLOYMENT:
            resource = f"deployments/{quote(str(body['model']), safe='')}/{path}"
        return f"{self._root}/openai/{resource}?api-version={quote(self._api_version, safe='')}"


class _DirectChat(AsyncChat):
    def __init__(self, client: DirectOpenAI) -> None:
        super().__init__(client)
        self._direct = client

    @cached_property
    def completions(self) -> AsyncCompletions:
        return _DirectCompletions(self._direct)


class _DirectCompletions(AsyncCompletions):
    def __init__(self, client: DirectOpenAI) -> None:
        super().__init__(client)
        self._direct = client

    async def create(self, **fields: Any) -> Any:
        """Send all fields that pydantic-ai gives, without repeating the SDK's list of them."""
        response = await self._direct.send("chat/completions", fields)
        return ChunkStream(cast_to=object, response=response, client=self._direct)


class _DirectResponses(AsyncResponses):
    def __init__(self, client: DirectOpenAI) -> None:
        super().__init__(client)
        self._direct = client

    async def create(self, **fields: Any) -> Any:
        """Send all fields that pydantic-ai gives, without repeating the SDK's list of them."""
        response = await self._direct.send("responses", fields)
        return ResponseStream.from_response(response, self._direct)


class _DirectEmbeddings(AsyncEmbeddings):
    def __init__(self, client: DirectOpenAI) -> None:
        super().__init__(client)
        self._direct = client

    async def create(self, **fields: Any) -> Any:
        """Ask for numbers: the SDK asks for base64, which not every compatible server has."""
        response = await self._direct.send("embeddings", fields | {"encoding_format": "float"})
        return await read_embeddings(response)
