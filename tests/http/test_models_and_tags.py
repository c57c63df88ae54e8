"""What there is to choose from: models, and tags in use."""

from typing import Any

import pytest
from httpx import AsyncClient

from holdfast import __version__
from holdfast.adapters.bell.local import LocalBell


@pytest.mark.parametrize("path", ["/v1/health/", "/v1/ready/"])
async def test_a_healthy_server_says_its_version(client: AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.json() == {"version": __version__, "status": "ok", "notifications": "ok"}


@pytest.mark.parametrize("path", ["/v1/health/", "/v1/ready/", "/latest/health/"])
async def test_a_server_that_polls_is_healthy_and_says_so(
    client: AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBell, "is_connected", False)
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert answer.json()["notifications"] == "polling"


async def test_models_are_listed_with_their_windows(client: AsyncClient) -> None:
    found = (await client.get("/v1/models/")).json()
    assert [(model["handle"], model["max_context_window"]) for model in found] == [
        ("anthropic/claude-x", 200_000),
        ("openai/gpt-x", 128_000),
    ]
    assert found[0]["model_type"] == "llm"
    assert (found[0]["name"], found[0]["model"]) == ("claude-x", "claude-x")


@pytest.mark.parametrize(
    ("params", "handles"),
    [
        ({"provider_name": "openai"}, ["openai/gpt-x"]),
        ({"provider_type": "anthropic"}, ["anthropic/claude-x"]),
        ({"provider_category": "byok"}, []),
        ({"provider_category": ["base", "byok"]}, ["anthropic/claude-x", "openai/gpt-x"]),
    ],
)
async def test_models_are_filtered_by_provider(
    client: AsyncClient, params: dict[str, Any], handles: list[str]
) -> None:
    found = (await client.get("/v1/models/", params=params)).json()
    assert [model["handle"] for model in found] == handles


async def test_embedding_models_are_listed(client: AsyncClient) -> None:
    found = (await client.get("/v1/models/embedding")).json()
    assert [(model["handle"], model["embedding_dim"]) for model in found] == [
        ("openai/embed-x", 1536)
    ]
    assert found[0]["model_type"] == "embedding"


async def test_tags_of_agents_and_blocks_are_listed_once(client: AsyncClient) -> None:
    await client.post("/v1/blocks/", json={"label": "a", "value": "", "tags": ["b", "a"]})
    await client.post("/v1/blocks/", json={"label": "a", "value": "", "tags": ["b", "Best"]})
    await client.post("/v1/agents/", json={"tags": ["c", "b"]})

    async def tags(**params: Any) -> list[str]:
        found: list[str] = (await client.get("/v1/tags/", params=params)).json()
        return found

    everything = await tags()
    assert sorted(everything) == ["Best", "a", "b", "c"]
    assert await tags(order="desc") == everything[::-1]
    assert await tags(limit=2, after=everything[1]) == everything[2:]
    assert await tags(limit=1, before=everything[2]) == [everything[1]]
    assert await tags(name="b") == ["b"]
    assert await tags(query_text="B") == ["Best", "b"]
