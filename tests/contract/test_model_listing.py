"""Model discovery: servers and providers are queried for their models and context windows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.discovery import discovery, listing
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.errors import UnknownModel

KEY = "a-secret-key"


class Server:
    """A server with one response per path; other paths are not found."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.pages = pages
        self.url = ""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        target = head[0].split(" ")[1]
        lines = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in lines}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((target, headers))
        page = self.pages.get(target.partition("?")[0])
        if callable(page):
            page = page(json.loads(body))
        status = "404 Not Found" if page is None else "200 OK"
        body_sent = json.dumps(page).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-length: {len(body_sent)}\r\nconnection: close\r\n\r\n".encode()
        )
        writer.write(body_sent)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def run_server(pages: dict[str, Any]) -> AsyncIterator[Server]:
    server = Server(pages)
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    async with listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


async def _windows(catalogue: ProviderCatalogue, provider: str) -> dict[str, int]:
    models = await catalogue.list_models()
    return {model.name: model.context_window for model in models if model.provider == provider}


async def _dimensions(catalogue: ProviderCatalogue) -> dict[str, int]:
    return {model.handle: model.dimensions for model in await catalogue.list_embeddings()}


def _ollama_show(body: dict[str, Any]) -> dict[str, Any]:
    about = {"general.architecture": "llama", "llama.context_length": 131_072}
    match body["model"]:
        case "loaded:latest" | "unloaded:7b":
            return {"model_info": about, "parameters": 'stop "<|eot|>"', "capabilities": ["tools"]}
        case "chosen:latest":
            return {"model_info": about, "parameters": "temperature 0.7\nnum_ctx    16384"}
        case "tiny:latest":
            return {"model_info": {"llama.context_length": 2048}}
        case _:
            embeds = {"bert.embedding_length": 768}
            return {"model_info": embeds, "capabilities": ["embedding"]}


OLLAMA = {
    "/api/tags": {
        "models": [
            {"name": name}
            for name in (
                "loaded:latest",
                "unloaded:7b",
                "chosen:latest",
                "tiny:latest",
                "nomic-embed-text:latest",
            )
        ]
    },
    "/api/ps": {"models": [{"name": "loaded:latest", "context_length": 32_768}]},
    "/api/show": _ollama_show,
}


async def test_ollama_is_asked_what_it_serves() -> None:
    async with run_server(OLLAMA) as server:
        catalogue = ProviderCatalogue(ProviderSettings({"ollama": {"base_url": server.url}}))
        # The context of the loaded model, else that of its file, else Ollama's default.
        assert await _windows(catalogue, "ollama") == {
            "loaded": 32_768,
            "unloaded:7b": 4_096,
            "chosen": 16_384,
            "tiny": 2_048,
        }
        assert await _dimensions(catalogue) == {"ollama/nomic-embed-text": 768}


async def test_lm_studio_is_asked_what_it_serves() -> None:
    models = [
        {
            "id": "loaded",
            "type": "llm",
            "max_context_length": 131_072,
            "loaded_context_length": 8192,
        },
        {"id": "unloaded", "type": "vlm", "max_context_length": 131_072},
        {"id": "nomic", "type": "embeddings", "max_context_length": 2048},
    ]
    async with run_server({"/api/v0/models": {"data": models}}) as server:
        catalogue = ProviderCatalogue(
            ProviderSettings({"lmstudio_openai": {"base_url": f"{server.url}/v1"}})
        )
        found = await _windows(catalogue, "lmstudio_openai")
    assert found == {"loaded": 8192, "unloaded": 4096}


async def test_vllm_is_asked_what_it_serves() -> None:
    models = [{"id": "Qwen/Qwen3-8B", "object": "model", "max_model_len": 40_960}]
    async with run_server({"/v1/models": {"data": models}}) as server:
        settings = ProviderSettings({"vllm": {"base_url": server.url, "api_key": KEY}})
        found = await _windows(ProviderCatalogue(settings), "vllm")
    assert found == {"Qwen/Qwen3-8B": 40_960}
    assert server.requests[0][1]["authorization"] == f"Bearer {KEY}"


async def test_llama_cpp_is_asked_what_it_serves() -> None:
    pages = {
        "/v1/models": {"data": [{"id": "gemma.gguf", "meta": {"n_ctx_train": 131_072}}]},
        "/props": {"default_generation_settings": {"n_ctx": 12_288}},
    }
    async with run_server(pages) as server:
        settings = ProviderSettings({"openai": {"base_url": f"{server.url}/v1"}})
        catalogue = ProviderCatalogue(settings)
        assert await _windows(catalogue, "openai-proxy") == {"gemma.gguf": 12_288}
        assert catalogue.find("openai-proxy/gemma.gguf").context_window == 12_288


async def test_a_server_that_reports_no_window_has_the_default_one() -> None:
    async with run_server({"/v1/models": {"data": [{"id": "mystery"}]}}) as server:
        settings = ProviderSettings({"vllm": {"base_url": server.url}})
        assert await _windows(ProviderCatalogue(settings), "vllm") == {"mystery": 128_000}


LISTS: list[tuple[str, str, Any, dict[str, int]]] = [
    (
        "groq",
        "/models",
        {"data": [{"id": "llama-3.3", "context_window": 131_072}, {"id": "whisper-3"}]},
        {"llama-3.3": 131_072},
    ),
    (
        "openrouter",
        "/models",
        {"data": [{"id": "x/y", "context_length": 65_536}]},
        {"x/y": 65_536},
    ),
    (
        "together",
        "/models",
        [{"id": "x/z", "type": "chat", "context_length": 32_768}],
        {"x/z": 32_768},
    ),
    (
        "mistral",
        "/v1/models",
        {"data": [{"id": "mistral-x", "max_context_length": 262_144}]},
        {"mistral-x": 262_144},
    ),
    ("xai", "/models", {"data": [{"id": "grok-9"}]}, {"grok-9": 128_000}),
    (
        "deepseek",
        "/models",
        {"data": [{"id": "deepseek-chat"}]},
        {"deepseek-chat": 128_000},
    ),
    (
        "anthropic",
        "/v1/models",
        {
            "data": [
                {"id": "claude-x", "max_input_tokens": 500_000},
                {"id": "claude-opus-4-5-20251101"},
            ]
        },
        {"claude-x": 500_000, "claude-opus-4-5-20251101": 200_000},
    ),
    (
        "google_ai",
        "/v1beta/models",
        {
            "models": [
                {
                    "name": "models/gemini-x",
                    "inputTokenLimit": 99,
                    "supportedGenerationMethods": ["generateContent"],
                },
                {"name": "models/veo", "supportedGenerationMethods": ["predict"]},
            ]
        },
        {"gemini-x": 99},
    ),
]


@pytest.mark.parametrize(("provider", "path", "page", "windows"), LISTS, ids=lambda value: None)
async def test_a_key_lists_what_it_can_reach(
    provider: str, path: str, page: Any, windows: dict[str, int]
) -> None:
    async with run_server({path: page}) as server:
        settings = ProviderSettings({provider: {"api_key": KEY, "base_url": server.url}})
        found = await _windows(ProviderCatalogue(settings), provider)
    assert found == windows
    assert KEY in str(server.requests[0][1])


async def test_openai_lists_models_that_talk_and_models_that_embed() -> None:
    names = [
        "gpt-4o",
        "gpt-4o-mini-tts",
        "dall-e-3",
        "gpt-image-1",
        "text-embedding-3-small",
        "omni-moderation",
        "o4-mini",
    ]
    pages = {"/v1/models": {"data": [{"id": name} for name in names]}}
    async with run_server(pages) as server:
        settings = ProviderSettings({"openai": {"api_key": KEY, "base_url": f"{server.url}/v1"}})
        catalogue = ProviderCatalogue(settings)
        assert await _windows(catalogue, "openai") == {"gpt-4o": 128_000, "o4-mini": 200_000}
        found = await _dimensions(catalogue)
    assert found == {"openai/text-embedding-3-small": 1536}


async def test_who_cannot_say_what_a_key_opens_is_not_asked() -> None:
    async with run_server({}) as server:
        settings = ProviderSettings(
            {
                "azure": {"api_key": KEY, "base_url": server.url},
                "google_vertex": {"project": "p", "base_url": server.url},
                "bedrock": {"region": "us-east-1", "api_key": KEY, "base_url": server.url},
            }
        )
        handles = [model.handle for model in await ProviderCatalogue(settings).list_models()]
    assert handles == ["holdfast/guide"]
    assert server.requests == []


# what a caller may choose


@pytest.mark.parametrize(
    ("name", "is_offered"),
    [
        ("served", True),
        ("gpt-9", False),
        # Aliases and variants of what is listed.
        ("grok-4", True),
        ("grok-4-latest", True),
        ("grok-4-mini", False),
        ("llama:free", True),
        ("team/anything", True),
        # Listed, though not for chat as far as its name says.
        ("whisper-3", True),
        ("text-embedding-x", True),
        # Published by the provider: no list is needed to accept it.
        ("gpt-4o", True),
    ],
)
async def test_a_model_that_the_known_list_lacks_is_refused(name: str, is_offered: bool) -> None:
    listed = ["served", "grok-4-0709", "llama", "team/*", "whisper-3", "text-embedding-x"]
    page = {"data": [{"id": one, "max_model_len": 9} for one in listed]}
    async with run_server({"/v1/models": page}) as server:
        settings = ProviderSettings({"openai": {"base_url": f"{server.url}/v1"}})
        catalogue = ProviderCatalogue(settings)
        handle = f"openai/{name}"
        await catalogue.prepare(handle)
        # An agent that has the model already keeps it.
        assert catalogue.find(handle).handle == handle
        if is_offered:
            assert catalogue.find(handle, must_be_listed=True).handle == handle
            return
        with pytest.raises(UnknownModel, match=f"Handle {handle} not found.*does not list {name}"):
            catalogue.find(handle, must_be_listed=True)


@pytest.mark.parametrize("pages", [{}, {"/v1/models": {"data": []}}], ids=["none", "empty"])
async def test_without_a_list_every_model_is_accepted(pages: dict[str, Any]) -> None:
    async with run_server(pages) as server:
        catalogue = ProviderCatalogue(ProviderSettings({"vllm": {"base_url": server.url}}))
        await catalogue.prepare("vllm/anything")
        assert catalogue.find("vllm/anything", must_be_listed=True).name == "anything"


async def test_a_provider_that_cannot_list_its_models_accepts_every_name() -> None:
    settings = ProviderSettings({"azure": {"api_key": KEY, "base_url": "http://127.0.0.1:1"}})
    catalogue = ProviderCatalogue(settings)
    await catalogue.prepare("azure/my-deployment")
    assert catalogue.find("azure/my-deployment", must_be_listed=True).name == "my-deployment"


# the requests


async def _never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_a_server_that_does_not_answer_is_left_out_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "TIMEOUT_SECONDS", 0.4)
    silent = await asyncio.start_server(_never_answer, "127.0.0.1", 0)
    async with run_server(
        {"/v1/models": {"data": [{"id": "there", "max_model_len": 7}]}}
    ) as server:
        port = silent.sockets[0].getsockname()[1]
        settings = ProviderSettings(
            {
                "vllm": {"base_url": server.url},
                "ollama": {"base_url": f"http://127.0.0.1:{port}"},
                "anthropic": {"api_key": KEY, "base_url": f"http://127.0.0.1:{port}"},
            }
        )
        async with asyncio.timeout(10):
            models = await ProviderCatalogue(settings).list_models()
        silent.close()
    handles = [model.handle for model in models]
    assert "vllm/there" in handles
    # While a provider cannot be reached, its published data is used.
    assert "anthropic/claude-opus-4-5" in handles
    assert not [handle for handle in handles if handle.startswith("ollama/")]


@pytest.mark.parametrize(
    "page", ["no list", {"data": "none"}, {"data": [{"name": "x"}]}, [1], None]
)
async def test_an_answer_that_makes_no_sense_breaks_nothing(page: Any) -> None:
    async with run_server({"/v1/models": page}) as server:
        catalogue = ProviderCatalogue(ProviderSettings({"vllm": {"base_url": server.url}}))
        assert [model.handle for model in await catalogue.list_models()] == ["holdfast/guide"]


async def test_a_discovered_list_is_cached_for_a_while() -> None:
    pages = {"/v1/models": {"data": [{"id": "one"}]}}
    async with run_server(pages) as server:
        settings = ProviderSettings({"vllm": {"base_url": server.url}})
        now = [0.0]
        catalogue = ProviderCatalogue(settings, discovery=ModelDiscovery(lambda: now[0]))
        for _ in range(3):
            await catalogue.list_models()
        asked = len(server.requests)
        server.pages["/v1/models"] = {"data": [{"id": "two"}]}
        now[0] = discovery.FRESH_SECONDS
        assert await _windows(catalogue, "vllm") == {"two": 128_000}
        # The models of a server that just stopped are kept for a while.
        del server.pages["/v1/models"]
        now[0] = 2 * discovery.FRESH_SECONDS
        assert await _windows(catalogue, "vllm") == {"two": 128_000}
    assert asked == 2  # the list, and whether it is a llama.cpp


async def test_concurrent_callers_share_one_request() -> None:
    async with run_server({"/v1/models": {"data": [{"id": "m", "max_model_len": 9}]}}) as server:
        catalogue = ProviderCatalogue(ProviderSettings({"vllm": {"base_url": server.url}}))
        await asyncio.gather(*(catalogue.list_models() for _ in range(5)))
    assert len(server.requests) == 1


async def test_reported_image_support_is_read() -> None:
    """Each server reports image support in its own way; others do not report it."""
    rows = [
        {"id": "a", "capabilities": ["completion", "vision"]},
        {"id": "b", "capabilities": ["completion"]},
        {"id": "c", "capabilities": {"vision": True}},
        {"id": "d", "capabilities": {"vision": False}},
        {"id": "e", "architecture": {"input_modalities": ["text", "image"]}},
        {"id": "f", "architecture": {"input_modalities": ["text"]}},
        {"id": "g", "type": "vlm"},
        {"id": "h", "type": "llm"},
        {"id": "i"},
    ]
    async with run_server({"/v1/models": {"data": rows}}) as server:
        settings = ProviderSettings({"vllm": {"base_url": server.url}})
        asked = ModelDiscovery()
        await asked.refresh(settings.accounts.values())
    listed = asked.last_list("vllm")
    assert listed is not None
    expected = [True, False] * 4
    assert [model.supports_images for model in listed.models] == [*expected, None]


async def test_the_lists_of_unused_accounts_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "_MAX_ACCOUNTS", 2)
    async with run_server({"/v1/models": {"data": [{"id": "m", "max_model_len": 9}]}}) as server:
        asked = ModelDiscovery()
        for owner in ("one", "two", "three"):
            await asked.refresh([Account(KEY, f"{server.url}/v1", "vllm", owner=owner)])
    found = [owner for owner in ("one", "two", "three") if asked.last_list(owner)]
    assert found == ["two", "three"]


async def test_no_more_is_read_than_a_list_of_models_is_long() -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        with suppress(ConnectionError):
            while sent < 1_000_000_000:
                writer.write(b" " * 1_000_000)
                await writer.drain()
                sent += 1_000_000
        writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        account = Account(KEY, f"http://127.0.0.1:{port}/v1", "vllm")
        assert await listing.fetch(account) is None
    assert sent < 100_000_000


# one model


async def test_a_model_is_prepared_by_asking_its_server_alone() -> None:
    async with run_server(OLLAMA) as server, run_server({}) as other:
        settings = ProviderSettings(
            {"ollama": {"base_url": server.url}, "vllm": {"base_url": other.url}}
        )
        catalogue = ProviderCatalogue(settings)
        assert catalogue.find("ollama/loaded").context_window == 128_000
        await catalogue.prepare("ollama/loaded")
        assert catalogue.find("ollama/loaded").context_window == 32_768
    assert other.requests == []


async def test_a_model_whose_window_is_published_needs_no_asking() -> None:
    async with run_server({}) as server:
        settings = ProviderSettings({"openai": {"api_key": KEY, "base_url": server.url}})
        await ProviderCatalogue(settings).prepare("openai/gpt-4o-2024-11-20")
    assert server.requests == []
