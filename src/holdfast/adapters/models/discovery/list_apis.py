"""The APIs that list models, one function each. They also say what context length a server really serves."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

import httpx2
import msgspec

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.discovery.model_list import ListedEmbedding, ListedModel, ModelList
from holdfast.adapters.models.providers.row import Listing

_Json: TypeAlias = Mapping[str, Any]
_ListApi: TypeAlias = Callable[[Account, httpx2.AsyncClient], Awaitable[ModelList]]

# A larger answer is not a list of models.
_MAX_BYTES = 16 * 1024 * 1024
_PAGE_SIZE = "1000"

# The names of a context window in these lists.
_WINDOW_FIELDS: Final = (
    "loaded_context_length",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "inputTokenLimit",
)

# The context window with which local servers load a model unless they are told otherwise.
_UNLOADED_WINDOW = 4096

LISTING_FAILURES: Final = (httpx2.HTTPError, ValueError, LookupError, TypeError, AttributeError)

_EMBEDDING_NAME = re.compile(r"embed|minilm|bge-", re.IGNORECASE)
_NON_CHAT_NAME = re.compile(
    r"whisper|tts|dall-e|image|audio|realtime|moderation|transcribe|davinci|babbage|sora|rerank|ocr",
    re.IGNORECASE,
)


async def _fetch_openai(account: Account, client: httpx2.AsyncClient) -> ModelList:
    """OpenAI's list, which vLLM, llama.cpp and most others have too."""
    return await _fetch_openai_at(
        (account.base_url or account.row.address or "").rstrip("/"), account, client
    )


async def _fetch_openai_under_v1(account: Account, client: httpx2.AsyncClient) -> ModelList:
    root = (account.base_url or account.row.address or "").rstrip("/").removesuffix("/v1")
    return await _fetch_openai_at(f"{root}/v1", account, client)


async def _fetch_openai_at(
    base_url: str, account: Account, client: httpx2.AsyncClient
) -> ModelList:
    found = await _get(client, f"{base_url}/models", _bearer_headers(account))
    # Together's is a bare list.
    rows = found if isinstance(found, list) else found["data"]
    if account.base_url and not any(map(_context_window, rows)):
        window = await _fetch_llama_cpp_window(base_url.removesuffix("/v1"), account, client)
        rows = [{"max_model_len": window, **row} for row in rows]
    return _to_model_list(rows)


async def _fetch_anthropic(account: Account, client: httpx2.AsyncClient) -> ModelList:
    root = (account.base_url or account.row.address or "").removesuffix("/v1")
    headers = {"x-api-key": account.api_key, "anthropic-version": "2023-06-01"}
    found = await _get(client, f"{root}/v1/models", headers, limit=_PAGE_SIZE)
    return _to_model_list(found["data"])


async def _fetch_google(account: Account, client: httpx2.AsyncClient) -> ModelList:
    root = account.base_url or account.row.address
    headers = {"x-goog-api-key": account.api_key}
    found = await _get(client, f"{root}/v1beta/models", headers, pageSize=_PAGE_SIZE)
    return _to_model_list(_select_google_models(found["models"]))


async def _fetch_llama_cpp_window(
    root: str, account: Account, client: httpx2.AsyncClient
) -> int | None:
    """The context that a llama.cpp server was started with; None if it is another server."""
    try:
        props = await _get(client, f"{root}/props", _bearer_headers(account))
        return int(props["default_generation_settings"]["n_ctx"])
    except LISTING_FAILURES:
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
        # "llama3.2:latest" is commonly called "llama3.2".
        short_name = name.removesuffix(":latest")
        if "embedding" in (details.get("capabilities") or ()):
            embeddings.append(
                ListedEmbedding(short_name, _find_by_suffix(about, ".embedding_length"))
            )
        else:
            window = served.get(name) or _ollama_window(details, about)
            models.append(ListedModel(short_name, window, _supports_images(details)))
    return ModelList(tuple(models), tuple(embeddings))


async def _fetch_ollama_details(
    client: httpx2.AsyncClient, root: str, headers: dict[str, str], name: str
) -> _Json:
    asked = client.stream("POST", f"{root}/api/show", json={"model": name}, headers=headers)
    details: _Json = await _read_json(asked)
    return details


def _ollama_window(details: _Json, about: _Json) -> int:
    """The context window with which Ollama will load the model: its ``num_ctx`` if it has one."""
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
    models = []
    embeddings = []
    others = set()
    for row in rows:
        name = str(row["id"])
        if row.get("type") == "embedding" or _EMBEDDING_NAME.search(name):
            embeddings.append(ListedEmbedding(name, None))
        elif not _NON_CHAT_NAME.search(name):
            models.append(ListedModel(name, _context_window(row), _supports_images(row)))
        else:
            others.add(name)
    return ModelList(tuple(models), tuple(embeddings), frozenset(others))


def _context_window(row: _Json) -> int | None:
    found = (row.get(name) for name in _WINDOW_FIELDS)
    return next((window for window in found if isinstance(window, int) and window > 0), None)


def _supports_images(row: _Json) -> bool | None:
    """Whether the model accepts images; None if the list does not say."""
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
    """The answer as JSON. ValueError if it is too long; no more than the limit is read."""
    read = bytearray()
    async with asked as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_bytes():
            read += piece
            if len(read) > _MAX_BYTES:
                raise ValueError("The answer is too long for a list of models.")
    return msgspec.json.decode(read)


LIST_APIS: Final[Mapping[Listing, _ListApi]] = {
    Listing.OPENAI: _fetch_openai,
    Listing.OPENAI_UNDER_V1: _fetch_openai_under_v1,
    Listing.ANTHROPIC: _fetch_anthropic,
    Listing.GOOGLE: _fetch_google,
    Listing.OLLAMA: _fetch_ollama,
    Listing.LM_STUDIO: _fetch_lmstudio,
}
