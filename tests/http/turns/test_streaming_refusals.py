"""What cannot be streamed: an HTTP error, or one in the stream where V1's loop found it (wire-v1 §4.2)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.http.turns.transcripts import Listener, items

from holdfast.core.messages import ToolCall

ASK = ToolCall(id="call_2", name="ask", arguments='{"what": 7}')
PENDING = (
    "Cannot send a new message: The agent is waiting for approval on a tool call. "
    "Please approve or deny the pending request before continuing."
)
NOTHING_PENDING = "Cannot process approval response: No tool call is currently awaiting approval."


def approval(call_id: str) -> dict[str, Any]:
    entry = {"type": "approval", "approve": True, "tool_call_id": call_id}
    return {"messages": [{"type": "approval", "approvals": [entry]}]}


@pytest.fixture
async def paused(client: AsyncClient, agent_id: str, model: Any) -> str:
    """The run that waits for a person."""
    model.says(calls=[ASK])
    body = {"input": "hi", "client_tools": [{"name": "ask"}]}
    answer = await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    return str(items(answer.text)[0]["run_id"])


@pytest.mark.parametrize(
    ("body", "status", "phrase"),
    [
        ({}, 422, "Must specify either 'input' or 'messages'."),
        ({"messages": []}, 422, "Messages must not be empty"),
        ({"input": "a", "max_steps": 0}, 422, "max_steps"),
        ({"input": "a", "on_disconnect": "panic"}, 422, "on_disconnect"),
        ({"input": "a", "override_model": "nobody/nothing"}, 404, "nobody/nothing not found"),
    ],
)
@pytest.mark.parametrize("path", ["messages/stream", "messages/async", "messages"])
async def test_what_is_wrong_with_the_request_is_an_http_error(
    client: AsyncClient, agent_id: str, path: str, body: dict[str, Any], status: int, phrase: str
) -> None:
    streaming = {"streaming": True} if path == "messages" else {}
    answer = await client.post(f"/v1/agents/{agent_id}/{path}", json=body | streaming)
    assert answer.status_code == status
    assert phrase in answer.json()["detail"]
    assert (await client.get("/v1/runs/")).json() == []


@pytest.mark.parametrize("path", ["messages/stream", "messages/async"])
async def test_an_agent_that_is_not_there_is_not_found(client: AsyncClient, path: str) -> None:
    answer = await client.post(f"/v1/agents/agent-{uuid4()}/{path}", json={"input": "hi"})
    assert (answer.status_code, answer.json()) == (404, {"detail": "Agent not found"})
    assert (await client.post(f"/v1/agents/nope/{path}", json={"input": "hi"})).status_code == 422


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"input": "and?"}, PENDING),
        (
            approval("nope"),
            "Invalid tool call IDs. Expected '['call_2']', but received '['nope']'.",
        ),
    ],
)
@pytest.mark.parametrize("background", [False, True])
async def test_a_paused_thread_refuses_in_the_stream_and_makes_no_run(
    client: AsyncClient,
    agent_id: str,
    paused: str,
    body: dict[str, Any],
    sentence: str,
    background: bool,
) -> None:
    path = f"/v1/agents/{agent_id}/messages/stream"
    answer = await client.post(path, json=body | {"background": background})
    assert answer.status_code == 200
    [stop, error] = items(answer.text)
    assert stop == {"message_type": "stop_reason", "stop_reason": "error"}
    # After V1's sentence comes the way out.
    assert error["message"].startswith(f"{sentence} Waiting: ask (call_2). ")
    assert error == {
        "message_type": "error_message",
        "run_id": None,
        "error_type": "internal_error",
        "message": error["message"],
        "detail": error["message"],
        "seq_id": None,
    }
    assert "\n\nevent: error\ndata: " in answer.text
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")
    assert [run["id"] for run in (await client.get("/v1/runs/")).json()] == [paused]


async def test_an_answer_to_nothing_is_refused_in_the_stream(
    client: AsyncClient, agent_id: str
) -> None:
    answer = await client.post(f"/v1/agents/{agent_id}/messages/stream", json=approval("call_2"))
    assert answer.status_code == 200
    assert items(answer.text)[1]["message"].startswith(NOTHING_PENDING)
    assert (await client.get("/v1/runs/")).json() == []


async def test_a_run_that_finds_the_thread_paused_at_its_turn_says_so_in_its_stream(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.open.clear()
    model.says(calls=[ASK])
    path, tools = f"/v1/agents/{agent_id}/messages/stream", [{"name": "ask"}]
    async with (
        Listener(app, path, {"input": "hi", "client_tools": tools}) as first,
        Listener(app, path, {"input": "and?"}) as second,
    ):
        async with asyncio.timeout(10):
            while len((await client.get("/v1/runs/active")).json()) < 2:
                pass
        model.open.set()
        assert items(await first.hears_all())[-2]["stop_reason"] == "requires_approval"
        [stop, error] = items(await second.hears_all())
    assert stop["stop_reason"] == "error"
    assert (error["error_type"], error["message"]) == ("internal_error", PENDING)


@pytest.mark.parametrize("busy_wait_seconds", [0.05])
async def test_a_busy_thread_refuses_a_stream_before_it_begins(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.open.clear()
    model.says("Hello!")
    path = f"/v1/agents/{agent_id}/messages/stream"
    async with Listener(app, path, {"input": "one"}) as first:
        await asyncio.wait_for(model.asked.wait(), 10)
        refused = await client.post(path, json={"input": "two"})
        assert refused.status_code == 409
        holder = refused.json()["run_id"]
        assert f"Another request (run_id={holder}) is currently being processed" in refused.text
        model.open.set()
        assert items(await first.hears_all())[0]["run_id"] == holder
    assert [run["id"] for run in (await client.get("/v1/runs/")).json()] == [holder]


@pytest.mark.parametrize("busy_wait_seconds", [0.0])
async def test_in_the_background_there_is_no_hurry(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.open.clear()
    for text in ("One.", "Two.", "Three."):
        model.says(text)
    path = f"/v1/agents/{agent_id}/messages"
    async with Listener(app, f"{path}/stream", {"input": "1", "background": True}) as first:
        await asyncio.wait_for(model.asked.wait(), 10)
        async with Listener(app, f"{path}/stream", {"input": "2", "background": True}) as second:
            await second.begins()
            sent = await client.post(f"{path}/async", json={"input": "3"})
            assert sent.status_code == 200
            model.open.set()
            assert items(await first.hears_all())[0]["content"] == "One."
            assert items(await second.hears_all())[0]["content"] == "Two."
    last = await client.post(f"/v1/runs/{sent.json()['id']}/stream", json={})
    assert items(last.text)[0]["content"] == "Three."
