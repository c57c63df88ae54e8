"""Sending and reading, over HTTP (wire-v1 §2.3, §1.10, §1.11)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient
from tests.support.http_turns import ROLL, Send

from holdfast.core.messages import Thinking
from holdfast.errors import ModelRateLimited

NOWHERE = f"agent-{uuid4()}"


def types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["message_type"] for message in messages]


async def list_messages(client: AsyncClient, agent_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/agents/{agent_id}/messages", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


async def test_a_plain_answer_comes_back_with_its_usage(model: Any, send: Send) -> None:
    model.says(Thinking("A greeting."), "Hello!")
    reply = await send("hi")
    assert types(reply["messages"]) == ["reasoning_message", "assistant_message"]
    assert reply["messages"][1]["content"] == "Hello!"
    assert reply["messages"][0]["id"] == reply["messages"][1]["id"]
    assert reply["stop_reason"] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert reply["usage"]["total_tokens"] == 12
    assert reply["usage"]["step_count"] == 1
    assert (reply["logprobs"], reply["turns"]) == (None, None)


@pytest.mark.usefixtures("roll_id")
async def test_a_tool_call_and_its_return_are_part_of_the_answer(model: Any, send: Send) -> None:
    model.says("Rolling.", calls=[ROLL])
    model.says("A four.")
    reply = await send("roll")
    assert types(reply["messages"]) == [
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert reply["messages"][2]["tool_return"] == "4"
    assert reply["usage"]["step_count"] == 2
    assert reply["usage"]["total_tokens"] == 24


async def test_a_filter_holds_for_the_answer_but_not_for_the_history(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.says(Thinking("hm"), "Hello!")
    reply = await send("hi", include_return_message_types=["assistant_message"])
    assert types(reply["messages"]) == ["assistant_message"]
    assert types(await list_messages(client, agent_id)) == [
        "system_message",
        "user_message",
        "reasoning_message",
        "assistant_message",
    ]
    only = await list_messages(client, agent_id, include_return_message_types=["user_message"])
    assert types(only) == ["user_message"]


async def test_history_is_oldest_first_from_either_end(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    for text in ("one", "two", "three"):
        model.says(text.upper())
        await send(text)
    everything = [message["id"] for message in await list_messages(client, agent_id)]
    assert len(everything) == 7

    async def ids(**params: Any) -> list[str]:
        return [message["id"] for message in await list_messages(client, agent_id, **params)]

    assert await ids(order="asc") == everything
    assert await ids(limit=2) == everything[-2:]
    assert await ids(limit=2, order="asc") == everything[:2]
    middle = everything[3]
    for order in ("asc", "desc"):
        assert await ids(after=middle, order=order) == everything[4:]
        assert await ids(before=middle, order=order) == everything[:3]
    assert await ids(after=middle, limit=1, order="asc") == [everything[4]]
    assert await ids(after=middle, limit=1, order="desc") == [everything[6]]
    assert await ids(after=everything[-1]) == []


async def test_the_default_thread_is_the_whole_history_of_an_agent_without_conversations(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.says("Hello!")
    await send()
    everything = await list_messages(client, agent_id)
    assert await list_messages(client, agent_id, conversation_id="default") == everything
    assert await list_messages(client, agent_id, conversation_id=f"conv-{uuid4()}") == []


async def test_an_unknown_cursor_is_not_found(client: AsyncClient, agent_id: str) -> None:
    cursor = f"message-{uuid4()}"
    answer = await client.get(f"/v1/agents/{agent_id}/messages", params={"after": cursor})
    assert answer.status_code == 404
    assert cursor in answer.json()["detail"]


async def test_one_message_is_a_list_of_all_that_it_shows_as(
    client: AsyncClient, model: Any, send: Send
) -> None:
    model.says(Thinking("hm"), "Hello!")
    said = (await send())["messages"]
    assert (await client.get(f"/v1/messages/{said[0]['id']}")).json() == said
    assert (await client.get(f"/v1/messages/message-{uuid4()}")).status_code == 404
    assert (await client.get("/v1/messages/nonsense")).status_code == 422


async def test_messages_of_all_agents_are_listed_oldest_first(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    other = (await client.post("/v1/agents/", json={"model": "openai/gpt-x"})).json()["id"]
    model.says("Hello!")
    await send()
    everywhere = (await client.get("/v1/messages/")).json()
    assert types(everywhere) == [
        "system_message",
        "system_message",
        "user_message",
        "assistant_message",
    ]
    first = (await client.get("/v1/messages/", params={"order": "asc", "limit": 1})).json()
    assert first == everywhere[:1]
    assert len(await list_messages(client, other)) == 1


async def test_the_otid_of_the_sender_is_kept_and_may_come_twice(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    for _ in range(2):
        model.says("Hello!")
        await send(messages=[{"role": "user", "content": "hi", "otid": "mine"}])
    sent = [m for m in await list_messages(client, agent_id) if m["message_type"] == "user_message"]
    assert [message["otid"] for message in sent] == ["mine", "mine"]


async def test_a_provider_failure_is_the_answer_and_leaves_the_history_alone(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.fails(ModelRateLimited("slow down"))
    body = {"input": "hi"}
    answer = await client.post(f"/v1/agents/{agent_id}/messages", json=body)
    assert answer.status_code == 429
    assert answer.json()["error"]["type"] == "llm_rate_limit"
    assert answer.json()["error"]["detail"] == "slow down"
    assert types(await list_messages(client, agent_id)) == ["system_message"]
    model.says("Hello!")
    await send()


async def test_a_send_whose_turn_comes_after_a_pause_fails_with_what_is_pending(
    client: AsyncClient, agent_id: str, roll_id: str, model: Any, send: Send
) -> None:
    wish = {"requires_approval": True}
    await client.patch(f"/v1/agents/{agent_id}/tools/approval/roll", json=wish)
    model.gate.clear()
    model.says(calls=[ROLL])
    first = asyncio.create_task(send("roll"))
    path, body = f"/v1/agents/{agent_id}/messages", {"input": "and?"}
    second = asyncio.create_task(client.post(path, json=body))
    async with asyncio.timeout(10):
        while len((await client.get("/v1/runs/active")).json()) < 2:
            pass
        model.gate.set()
        paused, refused = await first, await second
    request = paused["messages"][-1]
    assert request["message_type"] == "approval_request_message"
    assert refused.status_code == 409
    assert refused.json()["detail"]["code"] == "PENDING_APPROVAL"
    assert refused.json()["detail"]["pending_request_id"] == request["id"]
    # And so is one that comes later. It is not stored.
    assert (await client.post(path, json=body)).json() == {"detail": refused.json()["detail"]}


@pytest.mark.parametrize("busy_wait_seconds", [0.05])
async def test_a_second_send_waits_for_its_turn_and_is_refused_after_a_while(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.gate.clear()
    model.says("Hello!")
    first = asyncio.create_task(send("one"))
    await asyncio.wait_for(model.asked.wait(), 10)
    refused = await client.post(f"/v1/agents/{agent_id}/messages", json={"input": "two"})
    assert refused.status_code == 409
    holder = refused.json()["run_id"]
    assert f"Another request (run_id={holder}) is currently being processed" in refused.text
    model.gate.set()
    await asyncio.wait_for(first, 10)
    runs = (await client.get("/v1/runs/", params={"agent_id": agent_id})).json()
    assert [run["id"] for run in runs] == [holder]


@pytest.mark.parametrize(
    ("body", "status", "phrase"),
    [
        ({}, 422, "Must specify either 'input' or 'messages'."),
        ({"messages": []}, 422, "Messages must not be empty"),
        (
            {"input": "a", "messages": [{"role": "user", "content": "b"}]},
            422,
            "Cannot specify both",
        ),
        ({"input": "a", "stream_tokens": True}, 422, "Streaming options set without streaming"),
        ({"input": "a", "max_steps": 0}, 422, "max_steps"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "Message content is empty"),
        (
            {"messages": [{"type": "approval", "approvals": []}]},
            400,
            "Invalid approval response.",
        ),
        ({"input": "a", "override_model": "nobody/nothing"}, 404, "nobody/nothing not found"),
    ],
)
async def test_a_send_that_cannot_be_carried_out_leaves_nothing_behind(
    client: AsyncClient, agent_id: str, body: dict[str, Any], status: int, phrase: str
) -> None:
    answer = await client.post(f"/v1/agents/{agent_id}/messages", json=body)
    assert answer.status_code == status
    assert phrase in answer.json()["detail"]
    assert (await client.get("/v1/runs/")).json() == []


async def test_a_message_to_an_unknown_agent_is_refused(client: AsyncClient) -> None:
    answer = await client.post(f"/v1/agents/{NOWHERE}/messages", json={"input": "hi"})
    assert answer.status_code == 404
    assert answer.json() == {"detail": "Agent not found"}
    assert (await client.get(f"/v1/agents/{NOWHERE}/messages")).status_code == 404
    assert (await client.post("/v1/agents/nope/messages", json={"input": "hi"})).status_code == 422


async def test_a_message_cannot_be_edited(client: AsyncClient, agent_id: str) -> None:
    answer = await client.patch(f"/v1/agents/{agent_id}/messages/message-{uuid4()}", json={})
    assert answer.status_code == 405
    assert answer.json()["detail"].startswith("Message editing is no longer supported.")
