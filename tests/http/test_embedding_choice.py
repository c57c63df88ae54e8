"""The embedding model of an agent: kept and shown whether it is configured or not, and refused only if it is no handle
(memory-v1 §4.3, §4.4, §5.7)."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient
from tests.doubles.catalogue import FixedCatalogue
from tests.doubles.embedder import WordEmbedder
from tests.support.http_app import use_app

from holdfast.ports.services import Services

CONFIGURED = "openai/embed-x"
OTHER = "letta/letta-free"
CONFIG = {
    "embedding_model": "bge-m3",
    "embedding_endpoint_type": "ollama",
    "embedding_dim": 1024,
    "embedding_chunk_size": 77,
}


class CatalogueWithDefault(FixedCatalogue):
    def default_embedding(self) -> str | None:
        return CONFIGURED


@pytest.fixture
def services(services: Services) -> Services:
    return replace(services, embedder=WordEmbedder(CONFIGURED))


@pytest.fixture
async def client_with_default(services: Services) -> AsyncIterator[AsyncClient]:
    with use_app(replace(services, catalogue=CatalogueWithDefault())) as app:
        transport = ASGITransport(app)
        async with AsyncClient(transport=transport, base_url="http://localhost:8283") as http:
            yield http


async def create(client: AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def change(client: AsyncClient, agent_id: str, **body: Any) -> dict[str, Any]:
    answer = await client.patch(f"/v1/agents/{agent_id}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_an_agent_needs_no_embedding_model(client: AsyncClient) -> None:
    agent = await create(client)
    assert (agent["embedding"], agent["embedding_config"]) == (None, None)
    assert agent["model_warnings"] == []


async def test_a_configured_model_is_shown_with_its_dimensions(client: AsyncClient) -> None:
    agent = await create(client, embedding=CONFIGURED)
    assert agent["embedding"] == CONFIGURED
    config = agent["embedding_config"]
    assert (config["handle"], config["embedding_dim"]) == (CONFIGURED, 1536)
    assert (config["embedding_model"], config["embedding_endpoint_type"]) == ("embed-x", "openai")
    assert (config["embedding_chunk_size"], config["batch_size"]) == (300, 32)
    assert agent["model_warnings"] == []


async def test_one_that_is_not_configured_is_kept_and_told(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        agent = await create(client, embedding=OTHER)
    assert (agent["embedding"], agent["embedding_config"]["embedding_dim"]) == (OTHER, 1536)
    (warning,) = agent["model_warnings"]
    assert warning.startswith("The embedding model letta/letta-free is not configured")
    assert [record.message for record in caplog.records].count("embedding.not_configured") == 1
    # It is told as long as it holds, wherever the agent is shown.
    shown = (await client.get(f"/v1/agents/{agent['id']}")).json()
    (listed,) = (await client.get("/v1/agents/")).json()
    assert shown["model_warnings"] == listed["model_warnings"] == [warning]
    assert (await change(client, agent["id"], embedding=CONFIGURED))["model_warnings"] == []


@pytest.mark.parametrize(
    "handle", ["nonsense", "", "/", "openai/", "/text-embedding-3-small", " /x"]
)
async def test_what_is_no_handle_is_refused(client: AsyncClient, handle: str) -> None:
    agent = await create(client, embedding=CONFIGURED)
    expected = {"detail": f"INVALID_ARGUMENT: Embedding model {handle} not found"}
    refusals = [
        await client.post("/v1/agents/", json={"embedding": handle}),
        await client.patch(f"/v1/agents/{agent['id']}", json={"embedding": handle}),
    ]
    for refused in refusals:
        assert (refused.status_code, refused.json()) == (400, expected)
    assert len((await client.get("/v1/agents/")).json()) == 1
    assert (await client.get(f"/v1/agents/{agent['id']}")).json()["embedding"] == CONFIGURED


async def test_a_whole_configuration_wins_over_the_handle(client: AsyncClient) -> None:
    agent = await create(client, embedding=CONFIGURED, embedding_config=CONFIG)
    assert agent["embedding"] == "ollama/bge-m3"
    assert agent["embedding_config"] | CONFIG == agent["embedding_config"]
    named = await create(client, embedding_config=CONFIG | {"handle": CONFIGURED})
    assert (named["embedding"], named["model_warnings"]) == (CONFIGURED, [])
    assert named["embedding_config"]["embedding_dim"] == 1024


async def test_a_chunk_size_of_its_own_replaces_that_of_the_configuration(
    client: AsyncClient,
) -> None:
    for given in ({"embedding": CONFIGURED}, {"embedding_config": CONFIG}):
        agent = await create(client, embedding_chunk_size=123, **given)
        assert agent["embedding_config"]["embedding_chunk_size"] == 123
    assert (await create(client, embedding_chunk_size=123))["embedding_config"] is None


async def test_another_model_replaces_the_configuration(client: AsyncClient) -> None:
    agent = await create(client, embedding_config=CONFIG)
    changed = await change(client, agent["id"], embedding=CONFIGURED)
    config = changed["embedding_config"]
    assert (config["embedding_model"], config["embedding_dim"]) == ("embed-x", 1536)
    assert config["embedding_chunk_size"] == 300
    # There is no way back to none: null changes nothing.
    kept = await change(client, agent["id"], embedding=None, embedding_config=None, name="other")
    assert kept["embedding_config"] == config
    back = await change(client, agent["id"], embedding_config=CONFIG)
    assert (back["embedding"], back["embedding_config"]["embedding_dim"]) == ("ollama/bge-m3", 1024)


async def test_the_operators_default_is_for_new_agents_that_name_none(
    client: AsyncClient, client_with_default: AsyncClient
) -> None:
    before = await create(client)
    agent = await create(client_with_default)
    assert (agent["embedding"], agent["embedding_config"]["handle"]) == (CONFIGURED, CONFIGURED)
    assert (await create(client_with_default, embedding=OTHER))["embedding"] == OTHER
    assert (await change(client_with_default, before["id"], name="x"))["embedding"] is None


async def test_no_open_files_at_all_is_a_choice(client: AsyncClient) -> None:
    agent = await create(client, max_files_open=0)
    assert agent["max_files_open"] == 0
    assert (await change(client, agent["id"], max_files_open=1000))["max_files_open"] == 1000
    assert (await change(client, agent["id"], max_files_open=0))["max_files_open"] == 0
    shown = (await client.get(f"/v1/agents/{agent['id']}")).json()
    assert shown["max_files_open"] == 0


@pytest.mark.parametrize(
    ("field", "limit"),
    [("max_files_open", 1000), ("per_file_view_window_char_limit", 2_147_483_647)],
)
async def test_limits_of_files_have_limits(client: AsyncClient, field: str, limit: int) -> None:
    agent = await create(client, **{field: limit})
    expected = {"detail": f"INVALID_ARGUMENT: {field} cannot exceed {limit}. Got: {limit + 1}"}
    refusals = [
        await client.post("/v1/agents/", json={field: limit + 1}),
        await client.patch(f"/v1/agents/{agent['id']}", json={field: limit + 1}),
    ]
    for refused in refusals:
        assert (refused.status_code, refused.json()) == (400, expected)
    negative = await client.post("/v1/agents/", json={field: -1})
    assert negative.status_code == 422
    assert (await client.get(f"/v1/agents/{agent['id']}")).json()[field] == limit
