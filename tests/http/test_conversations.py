"""Conversations over HTTP, before anything is said in them (wire-v1 §2.7, §3.13)."""

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

Converse = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


@pytest.fixture
async def agent_id(client: AsyncClient) -> str:
    block = {"label": "human", "value": "Ann"}
    body = {"model": "openai/gpt-x", "include_base_tools": False, "memory_blocks": [block]}
    return str((await client.post("/v1/agents/", json=body)).json()["id"])


@pytest.fixture
def converse(client: AsyncClient, agent_id: str) -> Converse:
    async def converse(**body: Any) -> dict[str, Any]:
        made = await client.post("/v1/conversations/", params={"agent_id": agent_id}, json=body)
        assert made.status_code == 200, made.text
        conversation: dict[str, Any] = made.json()
        return conversation

    return converse


async def load_system_text(client: AsyncClient, conversation: dict[str, Any]) -> str:
    rows = (await client.get(f"/v1/conversations/{conversation['id']}/messages")).json()
    (system,) = [row for row in rows if row["message_type"] == "system_message"]
    return str(system["content"])


async def test_a_new_conversation_has_a_system_message_of_its_own(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    made = await converse(summary="Trains", description="All of them")
    assert made["agent_id"] == agent_id
    assert (made["summary"], made["description"]) == ("Trains", "All of them")
    assert (made["model"], made["model_settings"], made["context_window_limit"]) == (None,) * 3
    assert (made["archived"], made["archived_at"], made["last_message_at"]) == (False, None, None)
    assert len(made["in_context_message_ids"]) == 1
    text = await load_system_text(client, made)
    assert f"- CONVERSATION_ID: {made['id']}\n" in text
    assert "- CONVERSATION_ID: default" not in text
    assert "Ann" in text
    agent = (await client.get(f"/v1/agents/{agent_id}")).json()
    assert made["in_context_message_ids"][0] not in agent["message_ids"]
    assert (await client.get(f"/v1/conversations/{made['id']}")).json() == made


async def test_a_conversation_needs_no_body_but_an_agent(
    client: AsyncClient, agent_id: str
) -> None:
    made = await client.post("/v1/conversations/", params={"agent_id": agent_id})
    assert made.status_code == 200, made.text
    assert (await client.post("/v1/conversations/", json={})).status_code == 422
    nobody = {"agent_id": f"agent-{uuid4()}"}
    assert (await client.post("/v1/conversations/", params=nobody)).status_code == 404


async def test_a_conversation_may_have_a_model_of_its_own(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    settings = {"provider_type": "anthropic", "temperature": 0.3}
    made = await converse(
        model="anthropic/claude-x", model_settings=settings, context_window_limit=9_000
    )
    assert made["model"] == "anthropic/claude-x"
    assert made["model_settings"] == settings
    assert made["context_window_limit"] == 9_000
    params = {"agent_id": agent_id}
    for model, status in (("nonsense", 400), ("openai/none", 404)):
        body = {"model": model}
        refused = await client.post("/v1/conversations/", params=params, json=body)
        assert refused.status_code == status


async def test_a_conversation_may_have_blocks_of_its_own(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    at_agent = f"/v1/agents/{agent_id}/core-memory/blocks"
    for label, value in (("human", "Nobody yet"), ("persona", "A clerk")):
        block = {"label": label, "value": value}
        made = (await client.post("/v1/blocks/", json=block)).json()
        await client.patch(f"{at_agent}/attach/{made['id']}")

    async def prompt(conversation: str) -> str:
        path = f"/v1/conversations/{conversation}/recompile"
        shown: str = (await client.post(path, params={"dry_run": True}, json={})).json()
        stored: str = (await client.post(path, json={})).json()
        rows = (await client.get(f"/v1/conversations/{conversation}/messages")).json()
        assert rows[0]["content"] == stored
        assert shown.split("<memory_metadata>", maxsplit=1)[0] in stored
        return stored

    shared = await converse()
    apart = await converse(isolated_block_labels=["human", "human"])
    assert shared["isolated_block_ids"] == []
    (own,) = apart["isolated_block_ids"]
    retrieved = (await client.get(f"/v1/conversations/{apart['id']}")).json()
    assert retrieved["isolated_block_ids"] == [own]
    listed = (await client.get("/v1/conversations/")).json()
    assert [item["isolated_block_ids"] for item in listed] == [[own], []]

    # It began as a copy; from then on neither knows of the other, and the rest is shared.
    await client.patch(f"/v1/blocks/{own}", json={"value": "Ada"})
    await client.patch(f"{at_agent}/human", json={"value": "Bob"})
    await client.patch(f"{at_agent}/persona", json={"value": "A judge"})
    texts = await prompt(apart["id"]), await prompt(shared["id"])
    assert ["Ada" in text for text in texts] == [True, False]
    assert ["Bob" in text for text in texts] == [False, True]
    assert all("A judge" in text for text in texts)
    assert [block["value"] for block in (await client.get(at_agent)).json()] == ["A judge", "Bob"]

    # A fork has a copy of the copy. Blocks go with their conversation.
    fork = (await client.post(f"/v1/conversations/{apart['id']}/fork")).json()
    (copy,) = fork["isolated_block_ids"]
    assert copy != own
    assert (await client.get(f"/v1/blocks/{copy}")).json()["value"] == "Ada"
    await client.delete(f"/v1/conversations/{apart['id']}")
    assert (await client.get(f"/v1/blocks/{own}")).status_code == 404
    assert "Ada" in await prompt(fork["id"])
    await client.delete(f"/v1/blocks/{copy}")
    assert "Bob" in await prompt(fork["id"])


async def test_a_block_that_the_agent_does_not_have_cannot_be_isolated(
    client: AsyncClient, agent_id: str
) -> None:
    body = {"isolated_block_labels": ["secrets"]}
    refused = await client.post("/v1/conversations/", params={"agent_id": agent_id}, json=body)
    assert refused.status_code == 400
    assert "no block with label 'secrets'" in refused.json()["detail"]
    assert (await client.get("/v1/conversations/")).json() == []


async def test_an_update_changes_what_it_names(client: AsyncClient, converse: Converse) -> None:
    made = await converse(summary="Trains", model="openai/gpt-x", model_settings={"strict": True})
    path = f"/v1/conversations/{made['id']}"

    async def change(**body: Any) -> dict[str, Any]:
        changed = await client.patch(path, json=body)
        assert changed.status_code == 200, changed.text
        assert (await client.get(path)).json() == changed.json()
        conversation: dict[str, Any] = changed.json()
        return conversation

    changed = await change(description="All", last_message_at="2026-01-02T03:04:05", summary=None)
    assert (changed["summary"], changed["description"]) == ("Trains", "All")
    assert changed["last_message_at"] == "2026-01-02T03:04:05Z"
    assert changed["model_settings"] == {"strict": True}
    assert changed["updated_at"] > made["updated_at"]
    assert changed["in_context_message_ids"] == made["in_context_message_ids"]

    archived = await change(archived=True)
    assert archived["archived"] is True
    assert (await change(archived=True))["archived_at"] == archived["archived_at"] is not None
    assert (await change(archived=False))["archived_at"] is None

    other = await change(model="anthropic/claude-x")
    assert (other["model"], other["model_settings"]) == ("anthropic/claude-x", None)
    assert (await client.patch(path, json={"model": "openai/none"})).status_code == 404
    nothing = f"/v1/conversations/conv-{uuid4()}"
    assert (await client.patch(nothing, json={})).status_code == 404


async def test_a_list_shows_the_newest_first_without_contexts(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    one, two, three = [await converse(summary=text) for text in ("Red", "green", "greener")]
    await converse(hidden=True)
    await client.patch(f"/v1/conversations/{three['id']}", json={"archived": True})
    at = {"last_message_at": "2026-01-02T03:04:05Z"}
    await client.patch(f"/v1/conversations/{one['id']}", json=at)

    async def list_ids(**params: Any) -> list[str]:
        found = await client.get("/v1/conversations/", params=params)
        assert found.status_code == 200, found.text
        assert all(item["in_context_message_ids"] == [] for item in found.json())
        return [item["id"] for item in found.json()]

    assert await list_ids() == [two["id"], one["id"]]
    assert await list_ids(order="asc", archive_status="all") == [one["id"], two["id"], three["id"]]
    assert await list_ids(archive_status="archived") == [three["id"]]
    assert await list_ids(summary_search="GREEN", archive_status="all") == [three["id"], two["id"]]
    assert await list_ids(limit=1) == [two["id"]]
    assert await list_ids(limit=1, after=two["id"]) == [one["id"]]
    assert await list_ids(order_by="last_message_at", order="desc") == [one["id"], two["id"]]
    assert await list_ids(order_by="last_message_at", order="asc") == [one["id"], two["id"]]
    assert await list_ids(agent_id=agent_id) == await list_ids()
    assert await list_ids(agent_id=f"agent-{uuid4()}") == []
    wrong = await client.get("/v1/conversations/", params={"order_by": "summary"})
    assert wrong.status_code == 422


async def test_a_deleted_conversation_is_not_found_any_more(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    made = await converse()
    path = f"/v1/conversations/{made['id']}"
    gone = await client.delete(path)
    assert (gone.status_code, gone.json()) == (200, None)
    for again in (
        client.delete(path),
        client.get(path),
        client.get(f"{path}/messages"),
        client.patch(path, json={}),
        client.post(f"{path}/messages", json={"input": "hi"}),
        client.post(f"{path}/fork"),
        client.post(f"{path}/cancel"),
        client.post(f"{path}/recompile"),
        client.post(f"{path}/stream", json={}),
    ):
        answer = await again
        assert answer.status_code == 404
        assert answer.json()["detail"] == f"Conversation with ID {made['id']} not found"
    params = {"conversation_id": made["id"]}
    left = await client.get(f"/v1/agents/{agent_id}/messages", params=params)
    assert left.json() == []


async def test_recompiling_shows_what_the_blocks_say_now(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    made = await converse()
    (block,) = (await client.get(f"/v1/agents/{agent_id}/core-memory/blocks")).json()
    await client.patch(f"/v1/blocks/{block['id']}", json={"value": "Bob"})
    await client.patch(f"/v1/agents/{agent_id}", json={"system": "Be brief."})
    path = f"/v1/conversations/{made['id']}/recompile"
    dry = await client.post(path, params={"dry_run": True}, json={})
    assert dry.status_code == 200
    assert "Be brief." in dry.json()
    assert "Be brief." not in await load_system_text(client, made)
    wet = (await client.post(path, json={})).json()
    assert await load_system_text(client, made) == wet
    assert "Be brief." in wet
    assert "Bob" in wet
    assert f"- CONVERSATION_ID: {made['id']}\n" in wet
    default = await client.post("/v1/conversations/default/recompile", json={"agent_id": agent_id})
    assert "- CONVERSATION_ID: default\n" in default.json()
    still = await client.get(f"/v1/conversations/{made['id']}")
    assert still.json()["in_context_message_ids"] == made["in_context_message_ids"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/messages"),
        ("POST", "/messages"),
        ("POST", "/stream"),
        ("POST", "/cancel"),
        ("POST", "/fork"),
        ("POST", "/recompile"),
    ],
)
async def test_the_default_conversation_needs_its_agent(
    client: AsyncClient, agent_id: str, method: str, path: str
) -> None:
    async def ask(name: str, **options: str) -> Any:
        body = {"input": "hi", "streaming": False} | options
        return await client.request(
            method, f"/v1/conversations/{name}{path}", params=options, json=body
        )

    missing = await ask("default")
    assert missing.status_code == 400
    assert "agent_id" in missing.json()["detail"]
    for stranger in (f"agent-{uuid4()}", f"conv-{uuid4()}"):
        unknown = await ask("default", agent_id=stranger)
        assert unknown.status_code == 404
        assert f"Agent with ID {stranger} not found" in unknown.json()["detail"]
    assert (await ask("nonsense")).status_code == 422
    assert (await ask(f"run-{uuid4()}")).status_code == 422


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_only_a_conversation_can_be_looked_at_changed_or_deleted(
    client: AsyncClient, agent_id: str, method: str
) -> None:
    for name in ("default", agent_id):
        refused = await client.request(method, f"/v1/conversations/{name}", json={})
        assert refused.status_code == 422
        assert "conv-" in refused.json()["detail"]


async def test_nothing_to_cancel_and_nothing_to_resume_are_said_so(
    client: AsyncClient, agent_id: str, converse: Converse
) -> None:
    made = await converse()
    path = f"/v1/conversations/{made['id']}"
    refused = await client.post(f"{path}/cancel")
    assert refused.status_code == 409
    phrase = f"CONFLICT: No active runs to cancel for conversation {made['id']}"
    assert refused.json() == {"detail": phrase}
    assert refused.headers["x-should-retry"] == "false"
    direct = await client.post(f"/v1/conversations/{agent_id}/cancel")
    assert direct.json() == {"detail": f"CONFLICT: No active runs to cancel for agent {agent_id}"}

    resumed = await client.post(f"{path}/stream", json={})
    assert resumed.status_code == 400
    phrase = "INVALID_ARGUMENT: No active runs found for this conversation."
    assert resumed.json() == {"detail": phrase}
    assert (await client.post(f"{path}/stream")).json() == {"detail": phrase}
    unknown = await client.post(f"{path}/stream", json={"otid": "x"})
    assert unknown.status_code == 404
    phrase = "No run found for otid=x. The run may have expired or never existed."
    assert unknown.json() == {"detail": phrase}
    for run_id, status in (("nonsense", 400), (f"run-{uuid4()}", 404)):
        answer = await client.post(f"{path}/stream", json={"run_id": run_id})
        assert answer.status_code == status
    bad = await client.post(f"{path}/stream", json={"starting_after": -1})
    assert bad.status_code == 400
    assert "starting_after" in bad.json()["detail"]
