"""Cancelling a run that waits for its turn or for its model (wire-v1 §4.10, §5.5)."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import ConflictError, Letta, NotFoundError
from tests.support.client_objects import (
    as_dict,
    as_dicts,
    eventually,
    history,
    kinds,
    message_texts,
)
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended, read, read_until
from tests.support.tool_sources import SHOUT
from tests.support.wire_checks import assert_answers, assert_cancelled, message_ids

from holdfast.testing import Answer, Gate, ScriptedProvider, Thinking, ToolCall

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

WAIT_SECONDS = 30
UNKNOWN_RUN = "run-00000000-0000-4000-8000-000000000000"
UNKNOWN_AGENT = "agent-00000000-0000-4000-8000-000000000000"


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> "AgentState":
    return make_agent(tool_ids=[make_tool(SHOUT).id])


def only_run(client: Letta, agent_id: str) -> str:
    (run,) = client.runs.list(agent_id=agent_id).items
    return run.id


@pytest.mark.wire(4, 5, 6, 7, 8, 9, 10, 24, 138)
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_cancel_in_the_middle_of_an_answer_ends_its_stream_and_keeps_what_was_said(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", background: bool
) -> None:
    provider.script(Answer(Thinking("Well."), "One two", Gate("never released"), " three."))
    stream = client.agents.messages.stream(
        agent.id, input="Count", stream_tokens=True, background=background
    )
    begun = read_until(stream, "One two")
    run_id = begun[0]["run_id"]

    assert client.agents.messages.cancel(agent.id) == {run_id: "cancelled"}

    rest = as_dicts(stream)
    assert [item["message_type"] for item in rest] == ["stop_reason", "usage_statistics"]
    assert_ended(rest, "cancelled")
    assert_cancelled(client, run_id)
    (found,) = client.runs.list(agent_id=agent.id, stop_reason="cancelled", limit=1).items
    assert found.id == run_id
    replayed = as_dicts(client.runs.messages.stream(run_id, starting_after=0))
    assert len(replayed) == len(begun) + 2
    assert_ended(replayed, "cancelled")
    # The connection to the provider is closed.
    provider.requests[0].finished.block()
    assert provider.requests[0].closed_early
    (step,) = client.runs.steps.list(run_id).items
    assert as_dict(step)["status"] == "cancelled"
    assert message_texts(client, agent.id) == ["Count", "One two"]
    assert_answers(client, provider, agent.id)


def test_before_the_first_token_nothing_is_kept_but_the_run(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    gate = Gate("never released")
    provider.script(Answer(gate))
    before = message_ids(client, agent.id)
    stream = client.agents.messages.stream(agent.id, input="Hello?", stream_tokens=True)
    gate.reached.block()

    client.agents.messages.cancel(agent.id)

    stop, usage = as_dicts(stream)
    assert stop == {"message_type": "stop_reason", "stop_reason": "cancelled"}
    assert (usage["total_tokens"], usage["message_type"]) == (0, "usage_statistics")
    assert history(client, agent.id) == []
    assert message_ids(client, agent.id) == before
    run_id = only_run(client, agent.id)
    assert_cancelled(client, run_id)
    asked = as_dict(client.runs.retrieve(run_id))["input"]
    assert [row["content"] for row in asked] == ["Hello?"]
    provider.requests[0].finished.block()
    assert provider.requests[0].closed_early
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(11, 12, 13, 14, 32, 137)
def test_a_waiting_caller_gets_what_was_completed(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", pool: ThreadPoolExecutor
) -> None:
    gate = Gate("the second step; never released")
    provider.script(Answer(ToolCall("shout", {"text": "hey"})), Answer(gate))
    sending = pool.submit(client.agents.messages.create, agent.id, input="Shout")
    gate.reached.block()
    run_id = only_run(client, agent.id)

    assert client.agents.messages.cancel(agent.id, run_ids=[run_id]) == {run_id: "cancelled"}

    reply = sending.result(WAIT_SECONDS)
    assert as_dict(reply.stop_reason)["stop_reason"] == "cancelled"
    assert kinds(reply.messages) == ["tool_call_message", "tool_return_message"]
    stored = as_dicts(client.runs.messages.list(run_id).items)
    assert stored[0]["message_type"] == "user_message"
    assert stored[1:] == as_dicts(reply.messages)
    assert len(provider.requests) == 2
    assert_cancelled(client, run_id)
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(25, 26)
def test_a_stream_of_steps_has_shown_the_steps_that_were_completed(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    gate = Gate("the second step; never released")
    provider.script(Answer(ToolCall("shout", {"text": "hey"})), Answer(gate))
    stream = client.agents.messages.stream(agent.id, input="Shout")
    shown_before = kinds([next(stream), next(stream)])
    gate.reached.block()

    client.agents.messages.cancel(agent.id)

    assert shown_before == ["tool_call_message", "tool_return_message"]
    assert kinds(stream) == ["stop_reason", "usage_statistics"]
    assert_cancelled(client, only_run(client, agent.id))


@pytest.mark.wire(20, 21, 22, 23)
def test_a_call_that_a_person_would_have_to_allow_is_cancelled_before_it_is_complete(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT, default_requires_approval=True).id])
    provider.script(Answer("May I?", ToolCall("shout", {"text": "hey"}), Gate("never released")))
    stream = client.agents.messages.stream(
        agent.id, input="Shout", stream_tokens=True, background=True
    )
    run_id = read_until(stream, "May I?")[0]["run_id"]
    while as_dict(next(stream))["message_type"] != "approval_request_message":
        pass

    client.agents.messages.cancel(agent.id)

    assert_ended(as_dicts(stream), "cancelled")
    assert_cancelled(client, run_id)
    held = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert held.pending_approval is None
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(15, 16, 17, 18, 19, 30, 31)
def test_a_run_that_waits_for_its_turn_never_begins(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", pool: ThreadPoolExecutor
) -> None:
    gate = Gate("the run before")
    provider.script(Answer(gate, "To one."))
    first = pool.submit(client.agents.messages.create, agent.id, input="One")
    gate.reached.block()
    second = pool.submit(client.agents.messages.create, agent.id, input="Two")
    runs = eventually(
        lambda: client.runs.list(agent_id=agent.id).items, lambda found: len(found) == 2
    )
    queued = runs[0].id

    assert client.agents.messages.cancel(agent.id, run_ids=[queued]) == {queued: "cancelled"}

    reply = second.result(WAIT_SECONDS)
    assert as_dict(reply.stop_reason)["stop_reason"] == "cancelled"
    assert reply.messages == []
    assert_cancelled(client, queued)
    assert client.runs.steps.list(queued).items == []
    before = message_ids(client, agent.id)
    gate.release()
    reply = first.result(WAIT_SECONDS)
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    assert message_texts(client, agent.id) == ["One", "To one."]
    assert len(message_ids(client, agent.id)) > len(before)
    assert len(provider.requests) == 1


def test_without_ids_all_that_the_agent_is_doing_is_cancelled(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent, other = make_agent(), make_agent()
    gate, busy = Gate("never released"), Gate("another agent's")
    provider.script(Answer(busy, "Mine."), Answer(gate))
    elsewhere = client.agents.messages.create_async(other.id, input="Go on")
    busy.reached.block()
    running = client.agents.messages.create_async(agent.id, input="One")
    gate.reached.block()
    queued = client.agents.messages.create_async(agent.id, input="Two")

    done = client.agents.messages.cancel(agent.id)

    assert done == {running.id: "cancelled", queued.id: "cancelled"}
    for run in (running, queued):
        assert_cancelled(client, run.id)
        assert_ended(as_dicts(client.runs.messages.stream(run.id)), "cancelled")
    busy.release()
    assert_ended(as_dicts(client.runs.messages.stream(elsewhere.id)), "end_turn")
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(49)
def test_cancelling_twice_is_harmless_and_the_first_word_counts(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    gate = Gate("never released")
    provider.script(Answer("Well", gate))
    run = client.agents.messages.create_async(agent.id, input="Hello?")
    gate.reached.block()
    path = f"/v1/runs/{run.id}/cancel"

    first = http.post(path, json={"reason": "changed my mind"})
    second = http.post(path, json={"reason": "again"})

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["status"] == second.json()["status"] == "cancelled"
    receipt = second.json()["metadata"]["cancellation"]
    assert receipt == first.json()["metadata"]["cancellation"]
    assert (receipt["reason"], receipt["phase"]) == ("changed my mind", "model")
    assert client.agents.messages.cancel(agent.id, run_ids=[run.id]) == {run.id: "cancelled"}
    for _ in range(2):
        assert_ended(read(http, f"/v1/runs/{run.id}/stream"), "cancelled")
    assert_cancelled(client, run.id)
    assert_answers(client, provider, agent.id)


@pytest.mark.both_databases
@pytest.mark.wire(133, 134)
def test_what_is_over_stays_as_it_is_and_what_is_not_there_is_not_found(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent, other = make_agent(), make_agent()
    provider.script("Hello.")
    client.agents.messages.create(agent.id, input="Hello?")
    run = client.runs.retrieve(only_run(client, agent.id))

    named = [run.id, UNKNOWN_RUN]
    done = client.agents.messages.cancel(agent.id, run_ids=named)

    assert done == {run.id: "cancelled", UNKNOWN_RUN: "failed"}
    assert client.runs.retrieve(run.id) == run
    assert client.agents.retrieve(agent.id).last_stop_reason == "end_turn"
    # A run is cancelled through its own agent.
    assert client.agents.messages.cancel(other.id, run_ids=[run.id]) == {run.id: "failed"}
    with pytest.raises(ConflictError, match=f"No active runs to cancel for agent {agent.id}"):
        client.agents.messages.cancel(agent.id)
    with pytest.raises(NotFoundError):
        client.agents.messages.cancel(UNKNOWN_AGENT)
    assert http.post(f"/v1/runs/{UNKNOWN_RUN}/cancel").status_code == 404


def test_a_roll_back_makes_the_agent_forget_what_the_run_said(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    gate = Gate("never released")
    provider.script(Answer("Once upon", gate))
    before = client.agents.retrieve(agent.id).message_ids
    run = client.agents.messages.create_async(agent.id, input="A story")
    gate.reached.block()

    done = http.post(f"/v1/runs/{run.id}/cancel", json={"action": "rollback"})

    assert done.json()["status"] == "cancelled"

    assert client.agents.retrieve(agent.id).message_ids == before
    rows = as_dicts(client.runs.messages.list(run.id).items)
    assert [row["content"] for row in rows] == ["A story", "Once upon"]
    provider.script("Nothing.")
    client.agents.messages.create(agent.id, input="What did you say?")
    assert "Once upon" not in str(provider.requests[-1].messages)
