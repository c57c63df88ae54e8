"""Agents are found by filters and walked through page by page (wire-v1 §1.10, §2.2)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from letta_client import AsyncLetta

ADDRESS = "http://localhost:8283"
UNKNOWN = "agent-123e4567-e89b-42d3-8456-426614174000"


async def make(client: AsyncClient, **body: object) -> str:
    answer = await client.post("/v1/agents/", json={"include_base_tools": False, **body})
    assert answer.status_code == 200, answer.text
    made: str = answer.json()["id"]
    return made


async def list_ids(client: AsyncClient, **params: Any) -> list[str]:
    answer = await client.get("/v1/agents/", params=params)
    assert answer.status_code == 200, answer.text
    return [agent["id"] for agent in answer.json()]


@pytest.fixture
async def three(client: AsyncClient) -> list[str]:
    """Oldest first."""
    return [await make(client, name=name) for name in ("One", "Two", "Three")]


@pytest.fixture
async def sdk(app: FastAPI) -> AsyncIterator[AsyncLetta]:
    async with AsyncClient(transport=ASGITransport(app), base_url=ADDRESS) as http:
        yield AsyncLetta(base_url=ADDRESS, http_client=http)


async def test_the_newest_comes_first_unless_asked_otherwise(
    client: AsyncClient, three: list[str]
) -> None:
    assert await list_ids(client) == three[::-1]
    assert await list_ids(client, order="asc") == three
    assert await list_ids(client, ascending="true") == three


async def test_cursors_follow_the_sort_order_both_ways(
    client: AsyncClient, three: list[str]
) -> None:
    one, two, three_ = three
    assert await list_ids(client, after=three_, limit=1) == [two]
    assert await list_ids(client, after=two) == [one]
    assert await list_ids(client, after=one) == []
    assert await list_ids(client, before=one, limit=1) == [two]
    assert await list_ids(client, before=one) == [three_, two]
    assert await list_ids(client, order="asc", after=one) == [two, three_]
    assert await list_ids(client, order="asc", before=three_) == [one, two]


async def test_an_unknown_cursor_is_ignored(client: AsyncClient, three: list[str]) -> None:
    assert await list_ids(client, after=UNKNOWN) == three[::-1]


async def test_agents_can_be_sorted_by_their_last_change(
    client: AsyncClient, three: list[str]
) -> None:
    await client.patch(f"/v1/agents/{three[1]}", json={"description": "x"})
    assert (await list_ids(client, order_by="updated_at"))[0] == three[1]
    assert (await client.get("/v1/agents/", params={"order_by": "name"})).status_code == 422


async def test_the_sdk_pages_through_all_agents_and_stops(
    sdk: AsyncLetta, three: list[str]
) -> None:
    forward = [agent.id async for agent in await sdk.agents.list(limit=2)]
    assert forward == three[::-1]
    ascending = [agent.id async for agent in await sdk.agents.list(limit=1, order="asc")]
    assert ascending == three
    page = await sdk.agents.list(limit=1, before=three[0])
    assert [agent.id async for agent in page] == [three[1], three[2]]


async def test_names_are_matched_whole_or_in_part(client: AsyncClient, three: list[str]) -> None:
    assert await list_ids(client, name="Two") == [three[1]]
    assert await list_ids(client, name="two") == []
    assert await list_ids(client, query_text="t") == [three[2], three[1]]
    assert await list_ids(client, query_text="%") == []


async def test_tags_are_matched_all_or_any(client: AsyncClient) -> None:
    both = await make(client, tags=["red", "round"])
    red = await make(client, tags=["red"])
    await make(client)
    assert await list_ids(client, tags=["red", "round"]) == [red, both]
    assert await list_ids(client, tags=["red", "round"], match_all_tags="true") == [both]
    assert await list_ids(client, tags="blue") == []


async def test_other_filters_combine(client: AsyncClient) -> None:
    agent = await make(client, project_id="p", template_id="t", base_template_id="b")
    await make(client, project_id="p")
    assert len(await list_ids(client, project_id="p")) == 2
    assert await list_ids(client, project_id="p", template_id="t", base_template_id="b") == [agent]
    await client.patch(f"/v1/agents/{agent}", json={"last_stop_reason": "end_turn"})
    assert await list_ids(client, last_stop_reason="end_turn") == [agent]
    assert await list_ids(client, last_stop_reason="error") == []
    assert await list_ids(client, created_by_id="user-somebody") == []
    assert await list_ids(client, identity_id="identity-x") == []


async def test_hidden_agents_are_shown_only_on_demand(client: AsyncClient) -> None:
    shown = await make(client)
    hidden = await make(client, hidden=True)
    assert await list_ids(client) == [shown]
    assert await list_ids(client, show_hidden_agents="true") == [hidden, shown]


async def test_the_count_follows_the_same_filters(client: AsyncClient, three: list[str]) -> None:
    assert (await client.get("/v1/agents/count")).json() == 3
    assert (await client.get("/v1/agents/count", params={"query_text": "T"})).json() == 2


async def test_relations_in_a_list_are_empty_unless_they_are_named(client: AsyncClient) -> None:
    for tag in ("a", "b"):
        await make(client, tags=[tag], memory_blocks=[{"label": "human", "value": tag}])
    bare = (await client.get("/v1/agents/")).json()
    assert [(item["tags"], item["blocks"]) for item in bare] == [([], [])] * 2
    answer = await client.get(
        "/v1/agents/", params={"include": ["agent.tags", "agent.blocks", "agent.pending_approval"]}
    )
    shown = [(item["tags"], item["blocks"][0]["value"]) for item in answer.json()]
    assert shown == [(["b"], "b"), (["a"], "a")]
    assert [len(item["message_ids"]) for item in answer.json()] == [1, 1]


async def test_the_agents_of_a_block_are_listed(client: AsyncClient) -> None:
    block = (await client.post("/v1/blocks/", json={"label": "notes", "value": ""})).json()
    holders = [await make(client, block_ids=[block["id"]], tags=["t"]) for _ in range(3)]
    await make(client)
    path = f"/v1/blocks/{block['id']}/agents"
    assert [agent["id"] for agent in (await client.get(path)).json()] == holders[::-1]
    page = await client.get(path, params={"after": holders[2], "limit": 1, "include": "agent.tags"})
    assert [(agent["id"], agent["tags"]) for agent in page.json()] == [(holders[1], ["t"])]
    missing = await client.get("/v1/blocks/block-123e4567-e89b-42d3-8456-426614174000/agents")
    assert missing.status_code == 404


@pytest.mark.parametrize("params", [{"limit": 0}, {"order": "up"}, {"last_stop_reason": "x"}])
async def test_bad_parameters_are_refused(client: AsyncClient, params: dict[str, Any]) -> None:
    assert (await client.get("/v1/agents/", params=params)).status_code == 422
