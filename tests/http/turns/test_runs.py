"""Runs and steps, over HTTP (wire-v1 §2.8, §2.9, §5)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient
from tests.support.http_turns import ROLL, Send, get

from holdfast.core.messages import Thinking
from holdfast.errors import ModelTimedOut


@pytest.fixture
async def run_id(client: AsyncClient, roll_id: str, model: Any, send: Send) -> str:
    """A run of two steps that used a tool."""
    model.says(Thinking("A die."), calls=[ROLL])
    model.says("A four.")
    await send("roll")
    [run] = await get(client, "runs/")
    return str(run["id"])


async def test_a_finished_run_says_how_it_went(
    client: AsyncClient, agent_id: str, run_id: str
) -> None:
    run = await get(client, f"runs/{run_id}")
    assert (run["id"], run["agent_id"]) == (run_id, agent_id)
    assert (run["status"], run["stop_reason"]) == ("completed", "end_turn")
    assert run["completed_at"] >= run["created_at"]
    assert run["total_duration_ns"] > 0
    assert (run["background"], run["conversation_id"]) == (False, None)
    assert run["metadata"] == {"run_type": "send_message"}
    assert [message["content"] for message in run["input"]] == ["roll"]
    assert await get(client, "runs/") == [run]


async def test_a_run_lists_its_messages_from_the_question_on(
    client: AsyncClient, run_id: str
) -> None:
    messages = await get(client, f"runs/{run_id}/messages")
    kinds = [message["message_type"] for message in messages]
    assert kinds == [
        "user_message",
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert {message["run_id"] for message in messages} == {run_id}
    newest = await get(client, f"runs/{run_id}/messages", order="desc", limit=1)
    assert newest == messages[-1:]


async def test_a_runs_messages_keep_the_filter_of_its_request(
    client: AsyncClient, model: Any, send: Send
) -> None:
    model.says(Thinking("hm"), "Hello!")
    await send(include_return_message_types=["assistant_message"])
    [run] = await get(client, "runs/")
    messages = await get(client, f"runs/{run['id']}/messages")
    assert [message["message_type"] for message in messages] == ["assistant_message"]


async def test_a_run_tells_its_usage_and_metrics(
    client: AsyncClient, run_id: str, roll_id: str
) -> None:
    usage = await get(client, f"runs/{run_id}/usage")
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (20, 4)
    assert (usage["total_tokens"], usage["prompt_tokens_details"]) == (24, None)
    metrics = await get(client, f"runs/{run_id}/metrics")
    assert (metrics["id"], metrics["num_steps"]) == (run_id, 2)
    assert metrics["run_ns"] > 0
    assert metrics["tools_used"] == [roll_id]


async def test_a_run_is_shown_as_spans(client: AsyncClient, run_id: str) -> None:
    """From what is on record: nobody watched while it ran."""
    spans = await get(client, f"runs/{run_id}/trace")
    assert [span["name"] for span in spans] == [
        "invoke_agent",
        *("step", "chat gpt-x", "execute_tool"),
        *("step", "chat gpt-x"),
    ]
    run, first, chat, tool, second, _ = spans
    assert {span["trace_id"] for span in spans} == {run["trace_id"]}
    assert len({span["span_id"] for span in spans}) == len(spans)
    parents = [span["parent_span_id"] for span in spans]
    owners = (first, first, run, second)
    assert parents == [None, run["span_id"], *(owner["span_id"] for owner in owners)]
    assert None not in (run["duration_ns"], chat["duration_ns"], tool["duration_ns"])
    assert {span["status"] for span in spans} == {"ok"}
    assert await get(client, f"runs/{run_id}/trace", limit=2) == spans[:2]


async def test_steps_of_a_run_come_newest_first(client: AsyncClient, run_id: str) -> None:
    steps = await get(client, f"runs/{run_id}/steps")
    assert [step["status"] for step in steps] == ["success", "success"]
    assert [step["stop_reason"] for step in steps] == ["end_turn", None]
    assert await get(client, f"runs/{run_id}/steps", order="asc") == steps[::-1]
    assert await get(client, f"runs/{run_id}/steps", after=steps[0]["id"]) == steps[1:]


async def test_a_step_shows_its_model_its_messages_and_its_times(
    client: AsyncClient, run_id: str
) -> None:
    first = (await get(client, f"runs/{run_id}/steps", order="asc"))[0]
    assert await get(client, f"steps/{first['id']}") == first
    assert (first["model_handle"], first["total_tokens"]) == ("openai/gpt-x", 12)
    messages = await get(client, f"steps/{first['id']}/messages")
    assert [message["message_type"] for message in messages][-3:] == [
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
    ]
    metrics = await get(client, f"steps/{first['id']}/metrics")
    assert (metrics["id"], metrics["run_id"]) == (first["id"], run_id)
    assert metrics["llm_request_ns"] >= 0
    assert await get(client, f"steps/{first['id']}/trace") is None


async def test_steps_are_found_by_what_is_said_about_them(
    client: AsyncClient, agent_id: str, run_id: str
) -> None:
    newest, oldest = await get(client, "steps/")
    body = {"feedback": "positive", "tags": ["good"]}
    praised = (await client.patch(f"/v1/steps/{newest['id']}/feedback", json=body)).json()
    assert praised == newest | body
    assert await get(client, "steps/", feedback="positive") == [praised]
    assert await get(client, "steps/", tags=["good"]) == [praised]
    assert await get(client, "steps/", has_feedback=False) == [oldest]
    assert await get(client, "steps/", agent_id=agent_id, model="gpt-x") == [praised, oldest]
    assert await get(client, "steps/", trace_ids=["x"]) == []
    assert await get(client, "steps/", order="asc", limit=1) == [oldest]
    assert await get(client, "steps/", end_date="2020-01-01T00:00:00") == []
    assert len(await get(client, "steps/", start_date="2020-01-01T00:00:00-08:00")) == 2


async def test_a_failed_run_says_why(client: AsyncClient, agent_id: str, model: Any) -> None:
    model.fails(ModelTimedOut("after 3 s"))
    answer = await client.post(f"/v1/agents/{agent_id}/messages", json={"input": "hi"})
    assert answer.status_code == 504
    [run] = await get(client, "runs/", statuses=["failed"])
    assert (run["status"], run["stop_reason"]) == ("failed", "llm_api_error")
    error = run["metadata"]["error"]
    assert error["message_type"] == "error_message"
    assert (error["error_type"], error["run_id"]) == ("llm_timeout", run["id"])
    assert error["detail"] == "after 3 s"
    assert [message["content"] for message in run["input"]] == ["hi"]
    assert await get(client, f"runs/{run['id']}/messages") == []
    [step] = await get(client, f"runs/{run['id']}/steps")
    assert (step["status"], step["error_type"]) == ("failed", "llm_timeout")


async def test_runs_are_found_by_status_reason_and_agent(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    for text in ("one", "two", "three"):
        model.says(text)
        await send(text)

    async def list_inputs(**params: Any) -> list[str]:
        return [run["input"][0]["content"] for run in await get(client, "runs/", **params)]

    assert await list_inputs() == ["three", "two", "one"]
    assert await list_inputs(ascending=True, order="desc") == ["one", "two", "three"]
    assert await list_inputs(order="asc") == ["one", "two", "three"]
    assert await list_inputs(limit=2) == ["three", "two"]
    newest, middle, oldest = await get(client, "runs/")
    assert await list_inputs(after=newest["id"]) == ["two", "one"]
    assert await list_inputs(before=oldest["id"]) == ["three", "two"]
    assert await list_inputs(after=middle["id"], order="asc") == ["three"]
    assert (
        await list_inputs(statuses=["completed", "failed"], stop_reason="end_turn")
        == await list_inputs()
    )
    assert await list_inputs(statuses=["failed"]) == []
    assert await list_inputs(stop_reason="cancelled") == []
    assert await list_inputs(background=True) == []
    assert await list_inputs(active=True) == []
    assert await list_inputs(agent_ids=[agent_id, f"agent-{uuid4()}"]) == await list_inputs()
    # The one agent wins over the list.
    assert await list_inputs(agent_id=f"agent-{uuid4()}", agent_ids=[agent_id]) == []
    assert await list_inputs(conversation_id=f"conv-{uuid4()}") == []


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"statuses": ["sleeping"]}, 400),
        ({"stop_reason": "bored"}, 422),
        ({"limit": 0}, 422),
        ({"limit": 1001}, 422),
        ({"after": f"run-{uuid4()}"}, 404),
    ],
)
async def test_a_list_that_cannot_be_made_is_refused(
    client: AsyncClient, params: dict[str, Any], status: int
) -> None:
    assert (await client.get("/v1/runs/", params=params)).status_code == status


async def test_a_run_is_active_until_it_ends(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.gate.clear()
    model.says("Hello!")
    sending = asyncio.create_task(send())
    await asyncio.wait_for(model.asked.wait(), 10)
    [active] = await get(client, "runs/active")
    assert (active["status"], active["stop_reason"]) == ("running", None)
    assert active["completed_at"] is None
    assert await get(client, "runs/", active=True) == [active]
    assert await get(client, "runs/active", agent_id=f"agent-{uuid4()}") == []
    model.gate.set()
    await asyncio.wait_for(sending, 10)
    assert await get(client, "runs/active") == []


async def test_a_deleted_run_is_gone_but_its_messages_stay(
    client: AsyncClient, agent_id: str, run_id: str
) -> None:
    said = await get(client, f"agents/{agent_id}/messages")
    answer = await client.delete(f"/v1/runs/{run_id}")
    assert (answer.status_code, answer.json()) == (200, None)
    assert (await client.get(f"/v1/runs/{run_id}")).status_code == 404
    assert (await client.delete(f"/v1/runs/{run_id}")).status_code == 404
    assert await get(client, f"agents/{agent_id}/messages") == said


@pytest.mark.parametrize("below", ["", "/messages", "/usage", "/steps", "/metrics", "/trace"])
async def test_a_run_that_is_not_there_is_not_found(client: AsyncClient, below: str) -> None:
    assert (await client.get(f"/v1/runs/run-{uuid4()}{below}")).status_code == 404
    malformed = await client.get(f"/v1/runs/nonsense{below}")
    assert malformed.status_code == 400
    assert "Invalid run ID format" in malformed.json()["detail"]


@pytest.mark.parametrize("below", ["", "/messages", "/metrics", "/trace"])
async def test_a_step_that_is_not_there_is_not_found(client: AsyncClient, below: str) -> None:
    assert (await client.get(f"/v1/steps/step-{uuid4()}{below}")).status_code == 404
    assert (await client.get(f"/v1/steps/nonsense{below}")).status_code == 422


async def test_feedback_is_one_of_two_words(client: AsyncClient) -> None:
    path = f"/v1/steps/step-{uuid4()}/feedback"
    assert (await client.patch(path, json={"feedback": "meh"})).status_code == 422
    assert (await client.patch(path, json={"feedback": None})).status_code == 404
