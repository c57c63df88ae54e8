"""Memory blocks over HTTP (wire-v1 §2.6)."""

from typing import Any

import pytest
from httpx import AsyncClient

from holdfast import system_message

UNKNOWN = "block-123e4567-e89b-42d3-8456-426614174000"


async def _create(client: AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/blocks/", json={"label": "notes", "value": "v"} | body)
    assert answer.status_code == 200, answer.text
    block: dict[str, Any] = answer.json()
    return block


async def test_a_new_block_shows_every_field(client: AsyncClient) -> None:
    block = await _create(client, tags=["a", "b"], metadata={"k": [1]}, unknown="is ignored")
    assert block == {
        "id": block["id"],
        "label": "notes",
        "value": "v",
        "limit": 100_000,
        "description": None,
        "read_only": False,
        "metadata": {"k": [1]},
        "tags": ["a", "b"],
        "is_template": False,
        "template_name": None,
        "hidden": None,
        "project_id": None,
        "created_by_id": "user-00000000-0000-4000-8000-000000000000",
        "last_updated_by_id": "user-00000000-0000-4000-8000-000000000000",
        "template_id": None,
        "base_template_id": None,
        "deployment_id": None,
        "entity_id": None,
        "preserve_on_migration": None,
    }
    assert (await client.get(f"/v1/blocks/{block['id']}")).json() == block


async def test_well_known_labels_get_a_description(client: AsyncClient) -> None:
    assert (await _create(client, label="human"))["description"]
    assert (await _create(client, label="human", description="Mine."))["description"] == "Mine."


async def test_no_value_is_an_empty_value(client: AsyncClient) -> None:
    assert (await _create(client, value=None))["value"] == ""


@pytest.mark.parametrize(
    "body",
    [
        {"value": "v"},
        {"label": "notes"},
        {"label": "", "value": "v"},
        {"label": "two words", "value": "v"},
        {"label": "<tag>", "value": "v"},
        {"label": "a" * 51, "value": "v"},
        {"label": "notes", "value": "four", "limit": 3},
        {"label": "notes", "value": "x" * 1_000_001, "limit": 2_000_000},
        {"label": "notes", "value": "", "description": "x" * 1_000_001},
        {"label": "notes", "value": "", "limit": -1},
        {"label": "notes", "value": "", "limit": 2**63},
        {"label": "notes", "value": 5},
    ],
)
async def test_a_block_that_cannot_be_is_refused(client: AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.post("/v1/blocks/", json=body)
    assert answer.status_code == 422
    assert (await client.get("/v1/blocks/")).json() == []


async def test_an_update_changes_what_it_names(client: AsyncClient) -> None:
    block = await _create(client, description="Old.")
    changes = {"value": "new", "label": "a/b-c_1", "limit": 3, "read_only": True, "tags": ["t"]}
    answer = await client.patch(f"/v1/blocks/{block['id']}", json=changes)
    assert answer.json() == block | changes


async def test_null_clears_what_may_be_empty_and_nothing_else(client: AsyncClient) -> None:
    block = await _create(client, description="Old.", tags=["t"])
    nulls = {"description": None, "value": None, "label": None, "tags": None, "metadata": None}
    answer = await client.patch(f"/v1/blocks/{block['id']}", json=nulls)
    assert answer.json() == block | {"description": None}


CHANGES_ABOVE_THE_LIMIT = [
    {"value": "too long", "limit": 3},
    {"value": "x" * 100_001},
    {"value": "x" * 1_000_001, "limit": 2_000_000},
]


@pytest.mark.parametrize("changes", CHANGES_ABOVE_THE_LIMIT, ids=["own", "default", "of all"])
async def test_a_value_keeps_to_its_limit(client: AsyncClient, changes: dict[str, Any]) -> None:
    block = await _create(client)
    answer = await client.patch(f"/v1/blocks/{block['id']}", json=changes)
    assert answer.status_code == 422
    assert "character limit" in answer.json()["detail"]
    assert (await client.get(f"/v1/blocks/{block['id']}")).json() == block


async def test_a_deleted_block_is_gone(client: AsyncClient) -> None:
    block = await _create(client)
    answer = await client.delete(f"/v1/blocks/{block['id']}")
    assert (answer.status_code, answer.json()) == (200, None)
    assert (await client.get(f"/v1/blocks/{block['id']}")).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_an_unknown_block_is_not_found(client: AsyncClient, method: str) -> None:
    answer = await client.request(method, f"/v1/blocks/{UNKNOWN}", json={"value": "v"})
    assert answer.status_code == 404
    assert answer.json() == {"detail": f"Block with ID {UNKNOWN} not found"}


async def test_pages_begin_with_the_oldest_and_end(client: AsyncClient) -> None:
    made = [(await _create(client, label=f"l{n}"))["id"] for n in range(5)]
    seen: list[str] = []
    params: dict[str, str | int] = {"limit": 2}
    while page := (await client.get("/v1/blocks/", params=params)).json():
        seen += [block["id"] for block in page]
        params["after"] = seen[-1]
    assert seen == made
    newest = await client.get("/v1/blocks/", params={"order": "desc", "limit": 1})
    assert newest.json()[0]["id"] == made[-1]


async def test_filters_narrow_the_list(client: AsyncClient) -> None:
    await _create(client, label="one", value="apples", description="Fruit", tags=["x", "y"])
    await _create(client, label="two", value="pears", tags=["x"], is_template=True)

    async def labels(**params: Any) -> list[str]:
        answer = await client.get("/v1/blocks/", params=params)
        assert answer.status_code == 200, answer.text
        return [block["label"] for block in answer.json()]

    assert await labels(label="one") == ["one"]
    assert await labels(label_search="TW") == ["two"]
    assert await labels(value_search="apple") == ["one"]
    assert await labels(description_search="fruit") == ["one"]
    assert await labels(tags=["x", "y"]) == ["one", "two"]
    assert await labels(tags=["x", "y"], match_all_tags=True) == ["one"]
    assert await labels(templates_only=True) == ["two"]
    assert await labels(connected_to_agents_count_eq=0) == ["one", "two"]
    assert await labels(connected_to_agents_count_gt=0) == []
    assert (await client.get("/v1/blocks/count", params={"label": "one"})).json() == 1
    assert (await client.get("/v1/blocks/", params={"label": "two words"})).status_code == 422


async def _system_message(client: AsyncClient, agent_id: str) -> dict[str, Any]:
    rows = (await client.get(f"/v1/agents/{agent_id}/messages")).json()
    message: dict[str, Any] = rows[0]
    return message


async def test_holders_see_a_change_in_their_system_message(client: AsyncClient) -> None:
    block = await _create(client, value="likes tea")
    agent = (await client.post("/v1/agents/", json={"block_ids": [block["id"]]})).json()
    before = await _system_message(client, agent["id"])
    assert "likes tea" in before["content"]

    await client.patch(f"/v1/blocks/{block['id']}", json={"value": "likes coffee"})
    after = await _system_message(client, agent["id"])
    assert "likes coffee" in after["content"]
    assert after["id"] == before["id"]

    await client.delete(f"/v1/blocks/{block['id']}")
    assert "likes coffee" not in (await _system_message(client, agent["id"]))["content"]


async def test_an_agent_cannot_come_to_hold_two_blocks_of_one_label(client: AsyncClient) -> None:
    one = await _create(client, label="one")
    two = await _create(client, label="two")
    await client.post("/v1/agents/", json={"block_ids": [one["id"], two["id"]]})
    answer = await client.patch(f"/v1/blocks/{two['id']}", json={"label": "one"})
    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"


async def test_a_change_reaches_every_agent_with_the_block_and_its_conversations_when_they_are_compiled(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_message, "_AGENTS_AT_ONCE", 2)
    block = await _create(client, value="The old text.")
    agents, conversations = [], []
    for number in range(5):
        body = {"name": f"agent {number}", "block_ids": [block["id"]]}
        agents.append((await client.post("/v1/agents/", json=body)).json()["id"])
        answer = await client.post(f"/v1/conversations/?agent_id={agents[-1]}", json={})
        conversations.append(answer.json()["id"])

    async def shows(path: str) -> tuple[bool, bool]:
        text = (await client.get(path)).json()[0]["content"]
        return "The old text." in text, "The new text." in text

    await client.patch(f"/v1/blocks/{block['id']}", json={"value": "The new text."})
    for agent, conversation in zip(agents, conversations, strict=True):
        assert await shows(f"/v1/conversations/{agent}/messages") == (False, True)
        path = f"/v1/conversations/{conversation}"
        assert await shows(f"{path}/messages") == (True, False)
        await client.post(f"{path}/recompile", json={})
        assert await shows(f"{path}/messages") == (False, True)


async def test_a_long_list_is_answered_whole(client: AsyncClient) -> None:
    created = [(await _create(client, label=f"b{number}"))["id"] for number in range(101)]
    listed = (await client.get("/v1/blocks/", params={"limit": 1000, "order": "asc"})).json()
    assert [block["id"] for block in listed] == created
