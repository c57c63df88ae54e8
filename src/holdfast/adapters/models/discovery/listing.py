"""Asking providers and servers which models they have, and what context length they really serve.

Importing this module imports the HTTP client: the catalogue does that in a thread.
"""

import asyncio
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, Final, TypeAlias

import httpx2
import msgspec

from holdfast.adapters.models.discovery.model_list import ListedEmbedding, ListedModel, ModelList
from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.providers import table
from holdfast.adapters.models.transport import StreamTransport
from holdfast.errors import ModelAuthFailed, ModelError

_Json: TypeAlias = Mapping[str, Any]

_KEY_REFUSED_STATUSES: Final = (400, 401, 403)

# An answer that is larger is no list of models.
_MAX_BYTES = 16 * 1024 * 1024
_PAGE_SIZE = "1000"

# What a context window is called, by all that list models with one.
_WINDOW_FIELDS: Final = (
    "loaded_context_length",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "inputTokenLimit",
)

# What a local server loads a model with if nothing else was said, as far as anybody can know beforehand.
_UNLOADED_WINDOW = 4096

_LISTING_FAILURES = (httpx2.HTTPError, ValueError, LookupError, TypeError, AttributeError)

_EMBEDDING_NAME = re.compile(r"embed|minilm|bge-", re.IGNORECASE)
_NON_CHAT_NAME = re.compile(
    r"whisper|tts|dall-e|image|audio|realtime|moderation|transcribe|davinci|babbage|sora|rerank|ocr",
    re.IGNORECASE,
)


async def fetch(account: Account) -> ModelList | None:
    """What the provider says; None if it cannot be reached, or says something else."""
    try:
        async with _open_client(account) as client:
            return await _fetch_list(account, client)
    except _LISTING_FAILURES:
        return None


@lru_cache(maxsize=1)
def load_certificates() -> ssl.SSLContext:
    """Loading them takes 20 ms: once, and in a thread."""
    return httpx2.create_ssl_context()


def _open_client(account: Account) -> httpx2.AsyncClient:
    if account.is_plain_http:
        # There is nothing to verify.
        transport = StreamTransport(None)
        return httpx2.AsyncClient(transport=transport, trust_env=not account.is_loopback)
    return httpx2.AsyncClient(verify=load_certificates())


async def verify(account: Account) -> None:
    """Have the provider list its models with this key; whatever it does instead is a ModelError."""
    try:
        async with _open_client(account) as client:
            await _fetch_list(account, client)
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        if status in _KEY_REFUSED_STATUSES:
            raise ModelAuthFailed(
                f"{account.provider} refused the key (status {status})."
            ) from None
        raise ModelError(f"{account.provider} answered with status {status}.") from None
    except _LISTING_FAILURES as error:
        # Its text may have the address with the key in it.
        raise ModelError(
            f"{account.provider} could not be asked: {type(error).__name__}."
        ) from None


async def _fetch_list(account: Account, client: httpx2.AsyncClient) -> ModelList:
    match account.provider:
        case table.OLLAMA:
            return await _fetch_ollama(account, client)
        case table.LMSTUDIO:
            return await _fetch_lmstudio(account, client)
        case table.ANTHROPIC:
            root = (account.base_url or "https://api.anthropic.com").removesuffix("/v1")
            headers = {"x-api-key": account.api_key, "anthropic-version": "2023-06-01"}
            found = await _get(client, f"{root}/v1/models", headers, limit=_PAGE_SIZE)
            return _to_model_list(found["data"])
        case table.GOOGLE:
            root = account.base_url or "https://generativelanguage.googleapis.com"
            headers = {"x-goog-api-key": account.api_key}
            found = await _get(client, f"{root}/v1beta/models", headers, pageSize=_PAGE_SIZE)
            return _to_model_list(_select_google_models(found["models"]))
        case _:
            return await _fetch_openai(account, client)


async def _fetch_openai(account: Account, client: httpx2.AsyncClient) -> ModelList:
    """OpenAI's list, which vLLM, llama.cpp and most others know too."""
    public = table.PROVIDERS[account.provider].address or ""
    base_url = (account.base_url or public).rstrip("/")
    if account.provider == table.MISTRAL:
        base_url = f"{base_url.removesuffix('/v1')}/v1"
    found = await _get(client, f"{base_url}/models", _bearer_headers(account))
    # Together's is a bare list.
    rows = found if isinstance(found, list) else found["data"]
    if account.base_url and not any(map(_context_window, rows)):
        window = await _fetch_llama_cpp_window(base_url.removesuffix("/v1"), account, client)
        rows = [{"max_model_len": window, **row} for row in rows]
    return _to_model_list(rows)


async def _fetch_llama_cpp_window(
    root: str, account: Account, client: httpx2.AsyncClient
) -> int | None:
    """The context that a llama.cpp server was started with; None if it is another server."""
    try:
        props = await _get(client, f"{root}/props", _bearer_headers(account))
        return int(props["default_generation_settings"]["n_ctx"])
    except _LISTING_FAILURES:
        return None


async def _fetch_ollama(account: Account, client: httpx2.AsyncClient) -> ModelList:
    root = (account.base_url or "").removesuffix("/v1")
    headers = _bearer_headers(account)
    tags, running = await asyncio.gather(
        _get(client, f"{root}/api/tags", headers), _get(client, f"{root}/api/ps", headers)
    )
    names = [str(row["name"]) for row in tags["models"]]
    served = {str(row["name"]): _context_window(row) for row in running["models"]}
    shown = await asyncio.gather(
        *(_fetch_ollama_details(client, root, headers, name) for name in names)
    )
    models = []
    embeddings = []
    for name, details in zip(names, shown, strict=True):
        about = details.get("model_info") or {}
        # "llama3.2:latest" is called "llama3.2" by everybody.
        called = name.removesuffix(":latest")
        if "embedding" in (details.get("capabilities") or ()):
            embeddings.append(ListedEmbedding(called, _find_by_suffix(about, ".embedding_length")))
        else:
            window = served.get(name) or _ollama_window(details, about)
            models.append(ListedModel(called, window, _supports_images(details)))
    return ModelList(tuple(models), tuple(embeddings))


async def _fetch_ollama_details(
    client: httpx2.AsyncClient, root: str, headers: dict[str, str], name: str
) -> _Json:
    asked = client.stream("POST", f"{root}/api/show", json={"model": name}, headers=headers)
    details: _Json = await _read_json(asked)
    return details


def _ollama_window(details: _Json, about: _Json) -> int:
    """What Ollama will load the model with: its ``num_ctx`` if it has one, else hardly more than a page."""
    chosen = re.search(r"^num_ctx\s+(\d+)", str(details.get("parameters") or ""), re.MULTILINE)
    trained = _find_by_suffix(about, ".context_length") or _UNLOADED_WINDOW
    return int(chosen[1]) if chosen else min(trained, _UNLOADED_WINDOW)


async def _fetch_lmstudio(account: Account, client: httpx2.AsyncClient) -> ModelList:
    root = (account.base_url or "").removesuffix("/v1")
    found = await _get(client, f"{root}/api/v0/models", _bearer_headers(account))
    models = []
    embeddings = []
    for row in found["data"]:
        if row.get("type") == "embeddings":
            embeddings.append(ListedEmbedding(row["id"], None))
            continue
        window = _context_window(row)
        if window and "loaded_context_length" not in row:
            window = min(window, _UNLOADED_WINDOW)
        models.append(ListedModel(row["id"], window, _supports_images(row)))
    return ModelList(tuple(models), tuple(embeddings))


def _select_google_models(rows: Iterable[_Json]) -> Iterator[_Json]:
    for row in rows:
        methods = row.get("supportedGenerationMethods") or ()
        if "generateContent" in methods or "embedContent" in methods:
            yield {**row, "id": str(row["name"]).removeprefix("models/")}


def _to_model_list(rows: Iterable[_Json]) -> ModelList:
    """Models that talk, and models that embed."""
    models = []
    embeddings = []
    for row in rows:
        name = str(row["id"])
        if row.get("type") == "embedding" or _EMBEDDING_NAME.search(name):
            embeddings.append(ListedEmbedding(name, None))
        elif not _NON_CHAT_NAME.search(name):
            models.append(ListedModel(name, _context_window(row), _supports_images(row)))
    return ModelList(tuple(models), tuple(embeddings))


def _context_window(row: _Json) -> int | None:
    found = (row.get(name) for name in _WINDOW_FIELDS)
    return next((window for window in found if isinstance(window, int) and window > 0), None)


def _supports_images(row: _Json) -> bool | None:
    """Whether the model can be shown pictures, by all that say so."""
    match row:
        case {"capabilities": list(able)}:  # Ollama
            return "vision" in able
        case {"capabilities": {"vision": bool(able)}}:  # Mistral
            return bool(able)
        case {"architecture": {"input_modalities": list(ways)}}:  # OpenRouter
            return "image" in ways
        case {"type": "vlm" | "llm" as kind}:  # LM Studio
            return bool(kind == "vlm")
    return None


def _find_by_suffix(about: _Json, end: str) -> int | None:
    found = (value for name, value in about.items() if name.endswith(end))
    return next((value for value in found if isinstance(value, int)), None)


def _bearer_headers(account: Account) -> dict[str, str]:
    return {"authorization": f"Bearer {account.api_key}"}


async def _get(client: httpx2.AsyncClient, url: str, headers: dict[str, str], **query: str) -> Any:
    return await _read_json(client.stream("GET", url, headers=headers, params=query))


async def _read_json(asked: AbstractAsyncContextManager[httpx2.Response]) -> Any:
    """What was answered, if it is not too long; no more of it is read than that."""
    read = bytearray()
    async with asked as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_bytes():
            read += piece
            if len(read) > _MAX_BYTES:
                raise ValueError("This is no list of models.")
    return msgspec.json.decode(read)
