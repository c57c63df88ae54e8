"""Turns in conversations (wire-v1 §2.7, §4.8, §7.11): sending, reading, resuming, cancelling, forking."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from httpx import AsyncClient, Response
from tests.support.http_turns import ROLL
from tests.support.stream_transcripts import StreamReader, items

from holdfast.core.messages import Thinking

Send = Callable[..., Coroutine[Any, Any, Response]]
WAIT_SECONDS = 10


@pytest.fixture
async def path(client: AsyncClient, agent_id: str) -> str:
    """A conversation of the agent."""
    made = await client.post("/v1/conversations/", params={"agent_id": agent_id}, json={})
    return f"/v1/conversations/{made.json()['id']}"


@pytest.fixture
def say(client: AsyncClient, path: str) -> Send:
    """Send to the conversation, or to another thread, and get whatever comes back."""

    async def say(text: str = "hi", to: str = path, **options: Any) -> Response:
        body = {"messages": [{"role": "user", "content": text}]} | options
        return await client.post(f"{to}/messages", json=body)

    return say


async def contents(client: AsyncClient, path: str, **params: Any) -> list[str]:
    """What was said, in the order of the list."""
    listed = await client.get(f"{path}/messages", params=params)
    assert listed.status_code == 200, listed.text
    return [row["content"] for row in listed.json() if row["message_type"] != "system_message"]


async def run_of(client: AsyncClient, **params: Any) -> dict[str, Any]:
    (run,) = (await client.get("/v1/runs/", params=params)).json()
    assert isinstance(run, dict)
    return run


def types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["message_type"] for message in messages]


async def test_a_send_streams_unless_told_not_to(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    model.says("Hello!")
    answer = await say()
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert types(items(answer.text)) == ["assistant_message", "stop_reason", "usage_statistics"]
    run = await run_of(client, agent_id=agent_id)
    assert run["conversation_id"] == path.rsplit("/", 1)[1]
    assert run["metadata"]["run_type"] == "send_conversation_message"
    assert (run["status"], run["background"]) == ("completed", False)


async def test_a_json_send_ends_its_run_and_knows_its_conversation(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    model.says("Hello!")
    answer = (await say(streaming=False)).json()
    assert types(answer["messages"]) == ["assistant_message"]
    assert answer["stop_reason"]["stop_reason"] == "end_turn"
    run = await run_of(client, conversation_id=path.rsplit("/", 1)[1])
    assert (run["id"], run["status"]) == (answer["messages"][0]["run_id"], "completed")
    conversation = (await client.get(path)).json()
    assert conversation["last_message_at"] == run["created_at"]
    assert len(conversation["in_context_message_ids"]) == 3
    agent = (await client.get(f"/v1/agents/{agent_id}")).json()
    assert len(agent["message_ids"]) == 1
    refused = await say(streaming=False, background=True)
    assert refused.status_code == 422


@pytest.mark.parametrize("name", ["default", "agent"])
async def test_the_default_thread_can_be_sent_to_as_a_conversation(
    client: AsyncClient, agent_id: str, model: Any, say: Send, name: str
) -> None:
    to = f"/v1/conversations/{agent_id if name == 'agent' else name}"
    options = {"agent_id": agent_id} if name == "default" else {}
    model.says("Hello!")
    answer = await say(to=to, **options)
    assert types(items(answer.text))[0] == "assistant_message"
    run = await run_of(client, agent_id=agent_id)
    assert (run["conversation_id"], run["metadata"]["run_type"]) == (None, "send_message")
    for order in ("asc", "desc"):
        # Oldest first whatever the order, as agents' messages are.
        assert await contents(client, to, order=order, **options) == ["hi", "Hello!"]


async def test_threads_hear_nothing_of_each_other(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    for text, to in (("one", path), ("two", f"/v1/conversations/{agent_id}"), ("three", path)):
        model.says(text.upper())
        await say(text, to=to)
    assert await contents(client, path, order="asc") == ["one", "ONE", "three", "THREE"]
    assert await contents(client, f"/v1/conversations/{agent_id}") == ["two", "TWO"]
    words = [part.text for row in model.questions[-1].history[1:] for part in row.content]
    assert words == ["one", "ONE", "three"]
    # An agent's history has them all, or those of one.
    everything = await contents(client, f"/v1/agents/{agent_id}")
    assert everything == ["one", "ONE", "two", "TWO", "three", "THREE"]
    one = path.rsplit("/", 1)[1]
    assert len(await contents(client, f"/v1/agents/{agent_id}", conversation_id=one)) == 4


async def test_a_conversation_is_read_in_sort_order_page_by_page(
    client: AsyncClient, path: str, model: Any, say: Send
) -> None:
    for number in range(3):
        model.says(Thinking("hm"), f"answer {number}")
        await say(f"{number}")
    whole = (await client.get(f"{path}/messages", params={"order": "asc"})).json()
    rows = list(dict.fromkeys(message["id"] for message in whole))
    assert len(rows) == 7

    async def page(order: str, **cursors: str) -> list[str]:
        params: dict[str, Any] = {"order": order, "limit": 2} | cursors
        found = (await client.get(f"{path}/messages", params=params)).json()
        for first, second in pairwise(found):
            if first["id"] == second["id"]:
                # The parts of one row stay as they were said.
                assert types([first, second]) == ["reasoning_message", "assistant_message"]
        return list(dict.fromkeys(message["id"] for message in found))

    for order, expected in (("asc", rows), ("desc", rows[::-1])):
        seen = await page(order)
        while more := await page(order, after=seen[-1]):
            seen += more
        assert seen == expected
        back = await page(order, before=expected[-1])
        while more := await page(order, before=back[0]):
            back = more + back
        assert back == expected[:-1]
        between = await page(order, after=expected[1], before=expected[5])
        assert between == expected[2:4]
    unknown = await client.get(f"{path}/messages", params={"after": f"message-{uuid4()}"})
    assert unknown.status_code == 404
    only = {"include_return_message_types": ["user_message"], "order": "desc"}
    assert await contents(client, path, **only) == ["2", "1", "0"]


async def test_a_conversations_model_is_asked(
    client: AsyncClient, path: str, model: Any, say: Send
) -> None:
    settings = {"provider_type": "anthropic", "temperature": 0.25}
    options = {"model": "anthropic/claude-x", "model_settings": settings}
    assert (await client.patch(path, json=options)).status_code == 200
    model.says("Hello!")
    await say()
    choice = model.questions[-1].choice
    # The window stays the agent's (wire-v1 §7.10).
    assert (choice.handle, choice.context_window) == ("anthropic/claude-x", 128_000)
    assert choice.settings.temperature == 0.25
    model.says("Hello!")
    await say(override_model="openai/gpt-x")
    assert model.questions[-1].choice.handle == "openai/gpt-x"
    assert model.questions[-1].choice.settings.temperature is None


@pytest.mark.usefixtures("roll_id")
async def test_a_pause_is_reported_and_blocks_its_own_thread_only(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    wish = {"requires_approval": True}
    await client.patch(f"/v1/agents/{agent_id}/tools/approval/roll", json=wish)
    model.says(calls=[ROLL])
    assert types(items((await say()).text))[0] == "approval_request_message"
    refused = await say(streaming=False)
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("CONFLICT: Cannot send a new message: The agent is")
    assert refused.headers["x-should-retry"] == "false"
    streamed = await say()
    assert streamed.status_code == 200
    assert "waiting for approval" in streamed.text
    model.says("Hello!")
    assert types(items((await say(to=f"/v1/conversations/{agent_id}")).text))[0] == (
        "assistant_message"
    )
    pending = {"include": ["agent.pending_approval"]}
    agent = (await client.get(f"/v1/agents/{agent_id}", params=pending)).json()
    assert agent["pending_approval"] is None

    approval = {"type": "approval", "approvals": [{"tool_call_id": "call_1", "approve": True}]}
    model.says("A four.")
    answered = await say(messages=[approval], streaming=False)
    assert types(answered.json()["messages"]) == ["tool_return_message", "assistant_message"]


@pytest.mark.usefixtures("roll_id")
async def test_a_paused_run_of_a_conversation_can_be_cancelled(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    wish = {"requires_approval": True}
    await client.patch(f"/v1/agents/{agent_id}/tools/approval/roll", json=wish)
    for to in (f"/v1/conversations/{agent_id}", path):
        model.says(calls=[ROLL])
        await say(to=to)
    run = await run_of(client, conversation_id=path.rsplit("/", 1)[1])
    cancelled = await client.post(f"{path}/cancel")
    assert cancelled.json() == {run["id"]: "cancelled"}
    # The denial is written where the call waited, and the other thread still waits for its own.
    rows = (await client.get(f"{path}/messages", params={"order": "asc"})).json()
    assert types(rows)[-2:] == ["approval_response_message", "tool_return_message"]
    assert (await say(to=f"/v1/conversations/{agent_id}", streaming=False)).status_code == 409
    model.says("Hello!")
    assert (await say(streaming=False)).status_code == 200
    assert (await client.post(f"{path}/cancel")).status_code == 409


async def test_a_running_conversation_can_be_cancelled_and_the_queue_with_it(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    model.gate.clear()
    async with asyncio.timeout(WAIT_SECONDS):
        first = asyncio.create_task(say(streaming=False))
        await model.asked.wait()
        second = asyncio.create_task(say(streaming=False))
        while len(await _list_active_runs(client, path)) < 2:
            pass
        done = (await client.post(f"{path}/cancel")).json()
        assert sorted(done.values()) == ["cancelled", "cancelled"]
        for task in (first, second):
            assert (await task).json()["stop_reason"]["stop_reason"] == "cancelled"
    assert await _list_active_runs(client, path) == []
    agent = (await client.get(f"/v1/agents/{agent_id}")).json()
    assert agent["last_stop_reason"] == "cancelled"


async def _list_active_runs(client: AsyncClient, path: str) -> list[dict[str, Any]]:
    params: dict[str, Any] = {"conversation_id": path.rsplit("/", 1)[1], "active": True}
    found: list[dict[str, Any]] = (await client.get("/v1/runs/", params=params)).json()
    return found


def background_body(otid: str, **options: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "hi", "otid": otid}
    return {"messages": [message], "background": True} | options


async def test_a_repeated_background_send_reads_the_run_that_it_started(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    model.says("Hello!")
    async with asyncio.timeout(WAIT_SECONDS):
        at_once = await asyncio.gather(*(say(**background_body("mine")) for _ in range(4)))
        later = await say(**background_body("mine"))
    # Word for word: numbers and ids too.
    assert {answer.text for answer in at_once} == {later.text}
    assert items(later.text)[0]["seq_id"] == 1
    assert len(model.questions) == 1
    await run_of(client, agent_id=agent_id)
    assert await contents(client, path) == ["Hello!", "hi"]


async def test_only_background_sends_to_one_thread_are_known_again(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    direct = f"/v1/conversations/{agent_id}"
    sends: list[tuple[str, dict[str, Any]]] = [
        (path, background_body("mine")),
        (path, background_body("other")),
        (path, background_body("mine", background=False)),
        (path, background_body("mine", background=False, streaming=False)),
        (direct, background_body("mine")),
        (f"/v1/agents/{agent_id}", background_body("mine", streaming=True)),
        (f"/v1/agents/{agent_id}", background_body("mine", streaming=True)),
        (path, {"background": True}),
        (path, {"background": True}),
    ]
    for to, body in sends:
        model.says("Hello!")
        assert (await say(to=to, **body)).status_code == 200
    assert len(model.questions) == len(sends)
    # The default thread, sent to as a conversation, knows its own again.
    await say(to=direct, **background_body("mine"))
    assert len(model.questions) == len(sends)


async def test_a_stream_is_resumed_by_run_by_otid_or_as_the_newest(
    app: FastAPI, client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    model.says("Hello!")
    first = await say(**background_body("first"))
    run = await run_of(client, agent_id=agent_id)
    numbered = [item for item in items(first.text) if item.get("seq_id")]

    async def resume(to: str = path, **body: Any) -> str:
        answer = await client.post(f"{to}/stream", json=body)
        assert answer.status_code == 200, answer.text
        return answer.text

    assert await resume(otid="first") == first.text
    assert await resume(run_id=run["id"]) == first.text
    # A run is a run, whatever conversation it is asked for in.
    assert await resume(to=f"/v1/conversations/{agent_id}", run_id=run["id"]) == first.text
    after = numbered[0]["seq_id"]
    assert items(await resume(otid="first", starting_after=after)) == items(first.text)[1:]
    # Ended: it is not active any more.
    assert (await client.post(f"{path}/stream", json={})).status_code == 400

    model.gate.clear()
    model.asked.clear()
    model.says("Still here.")
    async with asyncio.timeout(WAIT_SECONDS):
        sending = asyncio.create_task(say(**background_body("second")))
        await model.asked.wait()
        assert (await client.post(f"/v1/conversations/{agent_id}/stream")).status_code == 400
        async with StreamReader(app, f"{path}/stream", {}) as reader:
            await reader.wait_for_start()
            model.gate.set()
            assert await reader.read_all() == (await sending).text


async def test_a_fork_shares_the_past_and_has_a_future_of_its_own(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    for text in ("one", "two"):
        model.says(text.upper())
        await say(text)
    source = (await client.get(path)).json()
    await client.patch(f"/v1/agents/{agent_id}", json={"system": "Be brief."})
    fork = (await client.post(f"{path}/fork")).json()
    to = f"/v1/conversations/{fork['id']}"
    assert (fork["agent_id"], fork["id"] == source["id"]) == (agent_id, False)
    assert (await client.get(to)).json() == fork
    assert fork["in_context_message_ids"][1:] == source["in_context_message_ids"][1:]
    assert fork["in_context_message_ids"][0] != source["in_context_message_ids"][0]
    system = (await client.get(f"/v1/messages/{fork['in_context_message_ids'][0]}")).json()[0]
    assert "Be brief." in system["content"]
    assert f"- CONVERSATION_ID: {fork['id']}\n" in system["content"]

    model.says("THREE")
    await say("three", to=to)
    words = [part.text for row in model.questions[-1].history[1:] for part in row.content]
    assert words == ["one", "ONE", "two", "TWO", "three"]
    model.says("FOUR")
    await say("four")
    before = ["one", "ONE", "two", "TWO"]
    assert await contents(client, to, order="asc") == [*before, "three", "THREE"]
    assert await contents(client, path, order="asc") == [*before, "four", "FOUR"]

    assert (await client.delete(path)).status_code == 200
    assert await contents(client, to, order="asc") == [*before, "three", "THREE"]
    model.says("FIVE")
    assert (await say("five", to=to, streaming=False)).status_code == 200


async def test_a_fork_may_begin_earlier_be_hidden_and_come_from_the_default_thread(
    client: AsyncClient, agent_id: str, model: Any, say: Send
) -> None:
    direct = f"/v1/conversations/{agent_id}"
    for text in ("one", "two"):
        model.says(text.upper())
        await say(text, to=direct)
    ids = (await client.get(f"/v1/agents/{agent_id}")).json()["message_ids"]
    params = {"agent_id": agent_id, "message_id": ids[2], "hidden": True}
    fork = (await client.post("/v1/conversations/default/fork", params=params)).json()
    assert fork["in_context_message_ids"][1:] == ids[1:3]
    listed = (await client.get("/v1/conversations/")).json()
    assert fork["id"] not in [item["id"] for item in listed]
    for stranger in (f"message-{uuid4()}", fork["in_context_message_ids"][0]):
        refused = await client.post(f"{direct}/fork", params={"message_id": stranger})
        assert refused.status_code == 404
        assert stranger in refused.json()["detail"]
    # The agent's own messages do not come twice for being shared.
    assert await contents(client, f"/v1/agents/{agent_id}") == ["one", "ONE", "two", "TWO"]


async def test_conversations_are_sorted_by_their_last_run(
    client: AsyncClient, agent_id: str, path: str, model: Any, say: Send
) -> None:
    made = [path.rsplit("/", 1)[1]]
    for _ in range(2):
        answer = await client.post("/v1/conversations/", params={"agent_id": agent_id})
        made.append(answer.json()["id"])
    for number in (2, 0):
        model.says("Hello!")
        await say(to=f"/v1/conversations/{made[number]}")
    for order, expected in (("desc", [0, 2, 1]), ("asc", [2, 0, 1])):
        for column in ("last_run_completion", "last_message_at"):
            params = {"agent_id": agent_id, "order": order, "order_by": column}
            found = (await client.get("/v1/conversations/", params=params)).json()
            assert [item["id"] for item in found] == [made[number] for number in expected]
