"""Runs and their steps (wire-v1 §2.8, §2.9, §5)."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import (
    APIStatusError,
    BadRequestError,
    InternalServerError,
    Letta,
    NotFoundError,
    UnprocessableEntityError,
)
from tests.support.client_objects import as_dict, as_dicts
from tests.support.tool_sources import SHOUT

from holdfast.testing import Answer, Gate, HttpError, ScriptedProvider, ToolCall, Usage

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.mark.wire(139)
def test_a_run_and_its_step_are_there_before_the_model_answers(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    pool: ThreadPoolExecutor,
    model: str,
) -> None:
    agent = make_agent(project_id="project-7")
    gate = Gate("the answer")
    provider.script(Answer(gate, "Done."))

    reply = pool.submit(client.agents.messages.create, agent.id, input="Hello?")
    gate.reached.block()

    (run,) = client.runs.list(agent_id=agent.id, active=True).items
    assert (run.status, run.stop_reason, run.completed_at) == ("running", None, None)
    assert run.metadata == {"run_type": "send_message"}
    metrics = http.get(f"/v1/runs/{run.id}/metrics").json()
    assert (metrics["id"], metrics["num_steps"], metrics["run_ns"]) == (run.id, 1, None)
    assert metrics["run_start_ns"] > 0
    assert metrics["project_id"] == "project-7"
    (step,) = client.runs.steps.list(run.id).items
    assert (step.status, step.total_tokens) == ("pending", 0)
    assert [run.id for run in client.runs.list(agent_id=agent.id, statuses=["running"])] == [run.id]

    gate.release()
    reply.result(timeout=30)
    assert client.steps.retrieve(step.id).status == "success"
    assert client.runs.list(agent_id=agent.id, active=True).items == []


@pytest.mark.both_databases
@pytest.mark.wire(118)
def test_no_run_is_created_for_an_agent_that_does_not_exist(client: Letta) -> None:
    agent_id = f"agent-{NOWHERE}"

    with pytest.raises(NotFoundError, match="Agent not found"):
        client.agents.messages.create(agent_id, input="Hello?")

    assert client.runs.list(agent_id=agent_id).items == []


@pytest.mark.both_databases
@pytest.mark.wire(125, 127, 128)
def test_the_end_of_a_run_is_on_record(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    tool = make_tool(SHOUT)
    agent = make_agent(tool_ids=[tool.id])
    assert agent.last_stop_reason is None
    provider.script(Answer(ToolCall("shout", {"text": "a"})), "Done.")

    reply = client.agents.messages.create(agent.id, input="Shout")

    run = client.runs.retrieve(str(as_dicts(reply.messages)[0]["run_id"]))
    assert (run.status, run.stop_reason, run.background) == ("completed", "end_turn", False)
    assert run.agent_id == agent.id
    assert run.created_at is not None
    assert run.completed_at is not None
    assert run.created_at.utcoffset() == timedelta(0)
    assert run.created_at <= run.completed_at
    assert run.total_duration_ns is not None
    assert run.total_duration_ns > 0
    assert client.agents.retrieve(agent.id).last_stop_reason == "end_turn"
    metrics = http.get(f"/v1/runs/{run.id}/metrics").json()
    assert metrics["num_steps"] == 2
    assert metrics["run_ns"] == run.total_duration_ns
    assert metrics["tools_used"] == [tool.id]


@pytest.mark.both_databases
@pytest.mark.wire(130, 132)
def test_usage_messages_and_steps_of_a_run(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(
        Answer(ToolCall("shout", {"text": "a"}), usage=Usage(input_tokens=11, output_tokens=2)),
        Answer("Done.", usage=Usage(input_tokens=20, output_tokens=3)),
    )
    reply = client.agents.messages.create(agent.id, input="Shout")
    (run,) = client.runs.list(agent_id=agent.id).items

    usage = client.runs.usage.retrieve(run.id)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (31, 5, 36)

    messages = as_dicts(client.runs.messages.list(run.id).items)
    assert messages[0]["content"] == "Shout"
    assert messages[1:] == as_dicts(reply.messages)
    newest_first = as_dicts(client.runs.messages.list(run.id, order="desc").items)
    assert [row["id"] for row in newest_first] == [row["id"] for row in reversed(messages)]

    newest, oldest = client.runs.steps.list(run.id).items
    assert (oldest.total_tokens, newest.total_tokens) == (13, 23)
    assert {newest.status, oldest.status} == {"success"}
    assert newest.stop_reason == "end_turn"
    assert [step.id for step in client.runs.steps.list(run.id, order="asc")] == [
        oldest.id,
        newest.id,
    ]
    assert as_dict(newest)["model_handle"] == model
    assert newest.provider_name == model.partition("/")[0]
    assert newest.run_id == run.id


@pytest.mark.both_databases
@pytest.mark.wire(130)
def test_totals_that_no_step_reported_stay_null(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(model="anthropic/claude-sonnet-4-5")
    provider.script("Done.", Answer("Done.", usage=Usage(input_tokens=9, cached_input_tokens=4)))
    for _ in range(2):
        client.agents.messages.create(agent.id, input="Go")
    cached, _ = client.runs.list(agent_id=agent.id).items

    usage = as_dict(client.runs.usage.retrieve(cached.id))

    assert usage["prompt_tokens"] == 9
    assert usage["prompt_tokens_details"]["cached_tokens"] == 4
    assert usage["completion_tokens_details"] is None


def test_a_step_is_fetched_with_its_messages_and_metrics(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(Answer("I call.", ToolCall("shout", {"text": "a"})), "Done.")
    client.agents.messages.create(agent.id, input="Shout")

    answered, called = client.steps.list(agent_id=agent.id).items
    said, call, result = as_dicts(client.steps.messages.list(called.id).items)[-3:]
    assert said["content"] == "I call."
    assert call["tool_call"]["name"] == "shout"
    assert result["tool_return"] == "A!"
    assert [row["content"] for row in as_dicts(client.steps.messages.list(answered.id).items)] == [
        "Done."
    ]
    metrics = client.steps.metrics.retrieve(called.id)
    assert metrics.llm_request_ns is not None
    assert metrics.tool_execution_ns is not None
    assert metrics.step_ns is not None
    assert metrics.step_ns >= metrics.llm_request_ns
    assert [step.id for step in client.steps.list(agent_id=agent.id, order="asc")] == [
        called.id,
        answered.id,
    ]
    assert client.steps.list(agent_id=agent.id, model="another").items == []


@pytest.mark.wire(139)
def test_a_step_whose_provider_fails_is_failed(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.respond_with(lambda _request: HttpError(500, "TEST: broken"))
    with pytest.raises(InternalServerError, match="TEST: broken"):
        client.agents.messages.create(agent.id, input="Hello?")

    (run,) = client.runs.list(agent_id=agent.id).items
    steps = client.runs.steps.list(run.id).items
    assert {step.status for step in steps} == {"failed"}
    assert "TEST: broken" in str(as_dict(steps[0])["error_data"])


@pytest.mark.both_databases
@pytest.mark.wire(119)
def test_a_run_is_fetched_by_its_id(client: Letta, http: httpx.Client) -> None:
    with pytest.raises(NotFoundError):
        client.runs.retrieve(f"run-{NOWHERE}")
    with pytest.raises(BadRequestError, match="Invalid run ID format: nope"):
        client.runs.retrieve("nope")
    for part in ("messages", "usage", "steps", "metrics"):
        assert http.get(f"/v1/runs/run-{NOWHERE}/{part}").status_code == 404
        assert http.get(f"/v1/runs/nope/{part}").status_code == 400


def test_a_malformed_acting_user_is_refused(http: httpx.Client) -> None:
    answer = http.get("/v1/runs/", headers={"user_id": "me"})

    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("INVALID_ARGUMENT: Invalid user ID format: me")


def test_a_step_takes_feedback(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    for _ in range(2):
        client.agents.messages.create(agent.id, input="Go")
    newest, _ = client.steps.list(agent_id=agent.id).items

    body = {"feedback": "positive", "tags": ["good"]}
    answer = http.patch(f"/v1/steps/{newest.id}/feedback", json=body)

    assert answer.json()["feedback"] == "positive"
    assert [step.id for step in client.steps.list(agent_id=agent.id, feedback="positive")] == [
        newest.id
    ]
    assert [step.id for step in client.steps.list(agent_id=agent.id, tags=["good"])] == [newest.id]
    assert len(client.steps.list(agent_id=agent.id, has_feedback=False).items) == 1


def test_a_step_takes_a_transaction(
    client: Letta, http: httpx.Client, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    client.agents.messages.create(agent.id, input="Go")
    (step,) = client.steps.list(agent_id=agent.id).items
    assert step.tid is None

    answer = http.patch(f"/v1/steps/{step.id}/transaction/t-1")

    assert (answer.json()["id"], answer.json()["tid"]) == (step.id, "t-1")
    assert client.steps.retrieve(step.id).tid == "t-1"
    assert http.patch(f"/v1/steps/step-{NOWHERE}/transaction/t-1").status_code == 404


@pytest.mark.both_databases
@pytest.mark.wire(122)
def test_runs_are_listed_newest_first_with_their_duration(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent, other = make_agent(), make_agent()
    for _ in range(3):
        client.agents.messages.create(agent.id, input="Go")
    client.agents.messages.create(other.id, input="Go")

    runs = client.runs.list(agent_id=agent.id).items

    assert len(runs) == 3
    assert all(run.total_duration_ns for run in runs)
    times = [run.created_at for run in runs]
    assert times == sorted(times, key=lambda time: time or 0, reverse=True)
    assert [run.id for run in client.runs.list(agent_id=agent.id, order="asc").items] == [
        run.id for run in reversed(runs)
    ]
    assert len(client.runs.list(agent_id=agent.id, limit=2).items) == 2
    assert len(client.runs.list(agent_ids=[agent.id, other.id]).items) == 4
    for limit in (0, 1001):
        with pytest.raises(UnprocessableEntityError):
            client.runs.list(agent_id=agent.id, limit=limit)


@pytest.mark.both_databases
def test_runs_are_filtered(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    client.agents.messages.create(agent.id, input="Go")
    provider.respond_with(lambda _request: HttpError(500))
    with pytest.raises(InternalServerError, match="llm_error"):
        client.agents.messages.create(agent.id, input="Fail")
    failed, good = client.runs.list(agent_id=agent.id).items

    def list_ids(**query: object) -> list[str]:
        return [run.id for run in client.runs.list(agent_id=agent.id, **query).items]  # type: ignore[arg-type]  # one name, many filters

    assert list_ids(statuses=["failed"]) == [failed.id]
    assert list_ids(statuses=["failed", "completed"]) == [failed.id, good.id]
    assert list_ids(stop_reason="end_turn") == [good.id]
    assert list_ids(background=True) == []
    assert list_ids(background=False) == [failed.id, good.id]
    assert list_ids(active=True) == []
    with pytest.raises(BadRequestError):
        list_ids(statuses=["tired"])
    with pytest.raises(UnprocessableEntityError):
        list_ids(stop_reason="tired")


@pytest.mark.both_databases
@pytest.mark.wire(120, 121)
def test_the_client_asks_for_runs_by_anything(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool = make_tool(SHOUT)
    agent = make_agent(tool_ids=[tool.id], project_id="project-7")
    conversation = client.conversations.create(agent_id=agent.id)
    provider.script(Answer(ToolCall("shout", {"text": "a"})), "Done.", "Done.", "Done.")
    client.agents.messages.create(agent.id, input="Shout")
    client.agents.messages.create(agent.id, input="Go")
    list(client.conversations.messages.create(conversation.id, input="Go"))
    spoken, plain, shouted = client.runs.list(agent_id=agent.id).items

    def list_ids(order: str = "asc", **query: object) -> list[str]:
        """Follows all pages as the client does."""
        pages = client.runs.list(agent_id=agent.id, limit=1, order=order, extra_query=query)  # type: ignore[arg-type]  # one of two words
        return [run.id for run in pages]

    assert list_ids() == [shouted.id, plain.id, spoken.id]
    assert list_ids(order="desc") == [spoken.id, plain.id, shouted.id]
    assert list_ids(tools_used=[tool.id]) == [shouted.id]
    assert list_ids(step_count=1) == [plain.id, spoken.id]
    assert list_ids(step_count=1, project_id="project-7", background=False) == [plain.id, spoken.id]
    assert list_ids(project_id="project-7", tools_used=[tool.id], step_count=1) == []
    assert list_ids(conversation_id=conversation.id, duration_percentile=0) == [spoken.id]
    assert list_ids(start_date=str(plain.created_at), end_date=str(plain.created_at)) == [plain.id]
    by_duration = sorted(
        (spoken, plain, shouted), key=lambda run: (run.total_duration_ns or 0, run.id)
    )
    assert list_ids(order_by="duration") == [run.id for run in by_duration]


@pytest.mark.both_databases
@pytest.mark.wire(126)
def test_a_conversation_is_free_once_its_run_has_failed(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    conversation = client.conversations.create(agent_id=make_agent().id)
    provider.script(HttpError(500, "TEST: broken"), "Done.")
    with pytest.raises(APIStatusError, match="TEST: broken"):
        list(client.conversations.messages.create(conversation.id, input="Go"))
    list(client.conversations.messages.create(conversation.id, input="Go"))

    newest, failed = client.runs.list(conversation_id=conversation.id).items

    assert (failed.status, newest.status) == ("failed", "completed")


@pytest.mark.both_databases
@pytest.mark.wire(123)
def test_a_deleted_run_is_gone_and_what_was_said_stays(
    client: Letta, http: httpx.Client, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    client.agents.messages.create(agent.id, input="Go")
    (run,) = client.runs.list(agent_id=agent.id).items

    deleted = http.delete(f"/v1/runs/{run.id}")

    assert (deleted.status_code, deleted.json()) == (200, None)
    assert http.delete(f"/v1/runs/{run.id}").status_code == 404
    with pytest.raises(NotFoundError):
        client.runs.retrieve(run.id)
    assert client.runs.list(agent_id=agent.id).items == []
    assert len(client.agents.messages.list(agent.id).items) == 3


def test_the_runs_of_a_deleted_agent_are_gone(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()
    reply = client.agents.messages.create(agent.id, input="Go")
    run_id = str(as_dicts(reply.messages)[0]["run_id"])

    client.agents.delete(agent.id)

    with pytest.raises(NotFoundError):
        client.runs.retrieve(run_id)
