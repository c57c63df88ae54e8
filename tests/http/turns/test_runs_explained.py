"""``GET /v1/runs/{id}/explain``: what a run waits for, and that the request it names does help."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient
from tests.support.http_turns import ROLL, Send, get
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.core.messages import ToolCall
from holdfast.errors import ModelTimedOut
from holdfast.ports.services import Services
from holdfast.usecases import explanation

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


async def follow(client: AsyncClient, explained: dict[str, Any], number: int = 0) -> Any:
    """Send one of the requests that the explanation names, just as it names it."""
    named = explained["unblock"][number]
    answer = await client.request(named["method"], named["path"], json=named["body"])
    assert answer.status_code == 200, answer.text
    return answer.json()


async def send_async(client: AsyncClient, agent_id: str) -> str:
    run = await client.post(f"/v1/agents/{agent_id}/messages/async", json=HELLO)
    return str(run.json()["id"])


async def test_who_asks_the_model_and_who_waits_behind_it(
    client: AsyncClient, services: Services, agent_id: str, model: Any
) -> None:
    model.gate.clear()
    model.says("Hello!")
    model.says("Hello again!")
    first, second = await send_async(client, agent_id), await send_async(client, agent_id)
    await asyncio.wait_for(model.asked.wait(), WAIT_SECONDS)

    asking = await get(client, f"runs/{first}/explain")
    waiting = await get(client, f"runs/{second}/explain")

    assert (asking["phase"], asking["status"]) == ("asking_model", "running")
    assert asking["waits_for"]["model"] == "openai/gpt-x"
    assert asking["lease"] == {
        "held_here": True,
        "expires_at": None,
        "is_valid": True,
        "server_id": services.lease.server_id,
        "host": "here",
        "fence": 1,
    }
    assert waiting["lease"] == {
        "held_here": False,
        "expires_at": None,
        "is_valid": False,
        "server_id": None,
        "host": None,
        "fence": 0,
    }
    [step] = await get(client, f"runs/{first}/steps")
    assert asking["num_steps"] == 1
    assert step["status"] == "pending"
    assert (waiting["phase"], waiting["status"]) == ("queued", "created")
    assert waiting["waits_for"]["runs"] == [first]
    assert first in waiting["summary"]
    assert (waiting["since"], waiting["started_at"]) == (waiting["created_at"], None)

    await follow(client, waiting)
    model.gate.set()
    cancelled = await get(client, f"runs/{first}/explain")
    assert (cancelled["lease"]["server_id"], cancelled["lease"]["is_valid"]) == (None, False)
    assert (cancelled["phase"], cancelled["status"]) == ("ended", "cancelled")
    assert "while it asked the model" in cancelled["summary"]
    assert cancelled["cancellation"]["phase"] == "model"
    await eventually(lambda: not model.script or len(model.questions) == 2)


async def test_of_a_long_line_it_is_said_that_it_is_longer(
    client: AsyncClient, agent_id: str, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "_MAX_RUNS_AHEAD", 2)
    model.gate.clear()
    line = [await send_async(client, agent_id) for _ in range(4)]

    third, last = [await get(client, f"runs/{run_id}/explain") for run_id in line[2:]]

    assert third["waits_for"]["runs"] == last["waits_for"]["runs"] == line[:2]
    assert "and 1 more." in third["summary"]
    assert "and more than 1 other." in last["summary"]
    model.gate.set()


async def test_a_run_that_waits_for_a_person_names_the_request_that_lets_it_go_on(
    client: AsyncClient, agent_id: str, roll_id: str, model: Any, send: Send
) -> None:
    path = f"/v1/agents/{agent_id}/tools/approval/roll"
    await client.patch(path, json={"requires_approval": True})
    model.says(calls=[ROLL])
    await send("roll")
    [run] = await get(client, "runs/")

    told = await get(client, f"runs/{run['id']}/explain")

    assert told["phase"] == "waiting_for_approval"
    [awaited] = told["waits_for"]["tool_calls"]
    assert (awaited["tool_call_id"], awaited["name"]) == ("call_1", "roll")
    assert (awaited["needs"], awaited["expires_at"]) == ("decision", None)
    assert awaited["answered_by"] == "anyone who may use this server"
    assert told["waits_for"]["approval_id"] in told["unblock"][0]["path"]
    assert told["usage"]["total_tokens"] == 12

    model.says("A four.")
    next_run = await follow(client, told)
    await asyncio.wait_for(_wait_for_end(client, next_run["id"]), WAIT_SECONDS)
    answered = await get(client, f"runs/{run['id']}/explain")
    assert next_run["id"] in answered["summary"]
    assert answered["unblock"] == []


async def test_a_clients_own_tool_is_answered_with_its_result(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.says(calls=[ToolCall(id="call_9", name="ring", arguments="{}")])
    tool = {"name": "ring", "description": "Ring.", "parameters": {"type": "object"}}
    await send("ring", client_tools=[tool])
    [run] = await get(client, "runs/")

    told = await get(client, f"runs/{run['id']}/explain")

    [awaited] = told["waits_for"]["tool_calls"]
    assert (awaited["needs"], awaited["name"]) == ("result", "ring")
    model.says("It rang.")
    next_run = await follow(client, told)
    await asyncio.wait_for(_wait_for_end(client, next_run["id"]), WAIT_SECONDS)
    assert (await get(client, f"runs/{next_run['id']}"))["status"] == "completed"


async def test_a_failed_run_says_why(client: AsyncClient, agent_id: str, model: Any) -> None:
    model.fails(ModelTimedOut("It took too long."))
    await client.post(f"/v1/agents/{agent_id}/messages", json=HELLO)
    [run] = await get(client, "runs/")

    told = await get(client, f"runs/{run['id']}/explain")

    assert (told["phase"], told["status"]) == ("ended", "failed")
    assert told["error"] == run["metadata"]["error"]
    assert "It took too long." in told["summary"]
    assert told["stop_reason"] == "llm_api_error"


async def test_only_a_run_that_exists_is_explained(client: AsyncClient) -> None:
    assert (await client.get(f"/v1/runs/run-{uuid4()}/explain")).status_code == 404
    assert (await client.get("/v1/runs/nope/explain")).status_code == 400


async def _wait_for_end(client: AsyncClient, run_id: str) -> None:
    """Read the run's stream to its end."""
    await client.post(f"/v1/runs/{run_id}/stream", json={})
