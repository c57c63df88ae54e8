"""A conversation that outgrows its model's window is compacted and continues (wire-v1 §7.9)."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import APIStatusError, BadRequestError, ConflictError, Letta
from tests.support.client_objects import as_dict, as_dicts, history, kinds, message_texts
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended, read
from tests.support.tool_sources import SHOUT
from tests.support.wire_approvals import allow, answer
from tests.support.wire_checks import assert_cancelled

from holdfast.testing import (
    Answer,
    Gate,
    HttpError,
    ProviderRequest,
    ScriptedProvider,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

# Each provider's error for a request that does not fit the window.
TOO_LONG = {
    "openai": HttpError(
        400, "This model's maximum context length is 10 tokens.", code="context_length_exceeded"
    ),
    "anthropic": HttpError(400, "prompt is too long: 11 tokens > 10 maximum"),
}
SUMMARISERS = {"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5"}
WINDOW = 10_000
FULL = Usage(input_tokens=9_500)


def asks_for_summary(request: ProviderRequest) -> bool:
    return request.asks_for_summary


def summaries(provider: ScriptedProvider) -> list[ProviderRequest]:
    return [request for request in provider.requests if request.asks_for_summary]


def context_ids(client: Letta, agent_id: str) -> list[str]:
    return client.agents.retrieve(agent_id).message_ids or []


def assert_answers(client: Letta, provider: ScriptedProvider, agent_id: str) -> None:
    before = context_ids(client, agent_id)
    provider.script("Still here.")
    reply = client.agents.messages.create(agent_id, input="Still there?")
    assert as_dicts(reply.messages)[-1]["content"] == "Still here."
    assert provider.requests[-1].refused is None
    assert context_ids(client, agent_id)[:-2] == before


@pytest.fixture
def agent(make_agent: "MakeAgent", model: str) -> "AgentState":
    return make_agent(context_window_limit=WINDOW, compaction_settings={"mode": "all"})


@pytest.fixture
def agent_with_messages(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> "AgentState":
    """An agent with some messages."""
    for number in range(2):
        provider.script(f"Answer {number}.")
        client.agents.messages.create(agent.id, input=f"Question {number}?")
    return agent


@pytest.mark.wire(147)
def test_a_question_that_does_not_fit_is_made_smaller_and_asked_again(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState", model: str
) -> None:
    wire = model.split("/", maxsplit=1)[0]
    provider.script("They talked.", when=asks_for_summary)
    provider.script(TOO_LONG[wire], "Here I am.")

    reply = client.agents.messages.create(agent_with_messages.id, input="And now?")

    assert [row["content"] for row in as_dicts(reply.messages)] == ["Here I am."]
    (asked,) = summaries(provider)
    assert asked.model == SUMMARISERS[wire]
    assert "user: Question 0?" in asked.user_text
    again = provider.requests[-1]
    assert again.refused is None
    assert "They talked." in str(again.messages)
    assert "Question 0?" not in str(again.messages)
    # The evicted messages are no longer sent to the model, but still listed.
    assert len(context_ids(client, agent_with_messages.id)) == 4
    assert message_texts(client, agent_with_messages.id)[:2] == ["Question 0?", "Answer 0."]
    (run,) = client.runs.list(agent_id=agent_with_messages.id, limit=1, order="desc").items[:1]
    steps = as_dicts(client.runs.steps.list(run.id, order="asc").items)
    assert [(step["status"], step["origin"]) for step in steps] == [
        ("failed", None),
        ("success", "compaction"),
        ("success", None),
    ]
    # The usage includes every model call that was answered.
    assert as_dict(reply.usage)["total_tokens"] == 30
    assert as_dict(reply.usage)["step_count"] == 1


@pytest.mark.wire(147)
def test_a_question_that_still_does_not_fit_is_given_up(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState", model: str
) -> None:
    refusal = TOO_LONG[model.split("/", maxsplit=1)[0]]
    provider.respond_with(lambda r: "Short." if r.asks_for_summary else refusal)

    with pytest.raises(BadRequestError, match="CONTEXT_WINDOW_EXCEEDED") as caught:
        client.agents.messages.create(agent_with_messages.id, input="And now?")

    assert refusal.message in str(caught.value)
    provider.respond_with(None)
    assert_answers(client, provider, agent_with_messages.id)


def test_a_summary_is_listed_as_v1_packed_it(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState"
) -> None:
    provider.script("They talked.")
    client.agents.messages.compact(agent_with_messages.id)

    row = history(client, agent_with_messages.id)[-1]
    assert row["message_type"] == "user_message"
    packed = json.loads(row["content"])
    assert packed["type"] == "system_alert"
    assert packed["message"].startswith("Note: prior messages have been hidden from view")
    assert packed["message"].endswith(
        "The following is a summary of the previous messages:\n They talked."
    )
    assert packed["time"].endswith("UTC+0000")
    assert packed["compaction_stats"]["trigger"] == "manual"
    assert packed["compaction_stats"]["context_window"] == WINDOW
    window = as_dict(client.agents.messages.list(agent_with_messages.id).items[0])
    assert "System prompt last recompiled" in window["content"]


def send_methods(client: Letta, http: httpx.Client, agent_id: str) -> dict[str, Any]:
    """The ways to send; each returns its items without stop reason and usage."""
    conversation = client.conversations.create(agent_id=agent_id).id
    direct = f"/v1/agents/{agent_id}/messages"

    def send_and_read(path: str, **body: Any) -> list[dict[str, Any]]:
        items = read(http, path, input="More?", **body)
        assert_ended(items, "end_turn")
        return items[:-2]

    return {
        "steps": lambda **more: send_and_read(f"{direct}/stream", **more),
        "tokens": lambda **more: send_and_read(f"{direct}/stream", stream_tokens=True, **more),
        "background": lambda **more: send_and_read(f"{direct}/stream", background=True, **more),
        "conversation": lambda **more: send_and_read(
            f"/v1/conversations/{conversation}/messages", **more
        ),
        "json": lambda **more: http.post(direct, json={"input": "More?"} | more).json()["messages"],
    }


@pytest.mark.parametrize("way", ["steps", "tokens", "background", "conversation", "json"])
def test_it_is_shown_to_those_who_asked_for_it_and_to_nobody_else(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, make_agent: "MakeAgent", way: str
) -> None:
    agent = make_agent(context_window_limit=WINDOW, compaction_settings={"mode": "all"})
    send = send_methods(client, http, agent.id)[way]
    for wanted in (False, True):
        provider.script(Answer("Yes.", usage=FULL), "They talked.")
        items = send(include_compaction_messages=wanted)
        told = [item for item in items if item["message_type"] != "assistant_message"]
        if not wanted:
            assert told == []
            continue
        *events, summary = told
        assert summary["message_type"] == "summary_message"
        assert summary["summary"].endswith(" They talked.")
        assert summary["otid"]
        assert summary["compaction_stats"]["trigger"] == "post_step_context_check"
        assert summary["compaction_stats"]["messages_count_after"] == 2
        assert [event["message_type"] for event in events] == ["event_message"] * (way != "json")
        for event in events:
            assert event["event_type"] == "compaction"
            assert event["event_data"] == {
                "trigger": "post_step_context_check",
                "context_token_estimate": 9_505,
                "context_window": WINDOW,
            }


def test_the_official_client_reads_a_stream_with_a_compaction(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState"
) -> None:
    provider.script(Answer("Yes.", usage=FULL), "They talked.")
    stream = client.agents.messages.stream(
        agent_with_messages.id, input="More?", stream_tokens=True, include_compaction_messages=True
    )
    assert kinds(stream) == [
        "assistant_message",
        "event_message",
        "summary_message",
        "stop_reason",
        "usage_statistics",
    ]


def test_a_thread_is_made_smaller_on_demand(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState"
) -> None:
    provider.script("They talked.")
    done = client.agents.messages.compact(agent_with_messages.id)
    assert (done.summary, done.num_messages_before, done.num_messages_after) == (
        "They talked.",
        5,
        2,
    )
    assert len(context_ids(client, agent_with_messages.id)) == 2
    again = client.agents.messages.compact(agent_with_messages.id)
    assert (again.summary, again.num_messages_before, again.num_messages_after) == (
        "They talked.",
        2,
        2,
    )
    (run,) = client.runs.list(agent_id=agent_with_messages.id, limit=1).items
    assert run.metadata is not None
    assert run.metadata["run_type"] == "compaction"
    assert_answers(client, provider, agent_with_messages.id)


def test_a_conversation_is_made_smaller_on_demand(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    conversation = client.conversations.create(agent_id=agent.id)
    for _ in range(3):
        list(client.conversations.messages.create(conversation.id, input="Hello?"))
    provider.script("They talked.")
    done = client.conversations.messages.compact(
        conversation.id, compaction_settings={"mode": "sliding_window"}
    )
    assert (done.num_messages_before, done.num_messages_after) == (7, 5)
    shows = client.conversations.retrieve(conversation.id).in_context_message_ids
    assert len(shows or ()) == 5
    # The agent's default thread is another one, and empty.
    assert len(context_ids(client, agent.id)) == 1


@pytest.mark.tools(65)
def test_compacting_an_empty_conversation_is_a_400_and_of_an_empty_agent_a_result(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    conversation = client.conversations.create(agent_id=agent.id)
    too_few = re.escape(
        "Summarization failed to reduce the number of messages. You may not have enough messages to compact or need to "
        "use a different CompactionSettings (e.g. using `all` mode)."
    )
    with pytest.raises(BadRequestError, match=too_few):
        client.conversations.messages.compact(conversation.id)
    with pytest.raises(BadRequestError, match=too_few):
        client.conversations.messages.compact("default", agent_id=agent.id)

    done = client.agents.messages.compact(agent.id)

    assert (done.summary, done.num_messages_before, done.num_messages_after) == ("", 1, 1)
    assert client.runs.list(agent_id=agent.id).items == []
    assert provider.requests == []


def test_what_cannot_shrink_is_a_400(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
) -> None:
    tool = make_tool(SHOUT, default_requires_approval=True)
    agent = make_agent(tool_ids=[tool.id], compaction_settings={"mode": "all"})
    provider.script(Answer(ToolCall("shout", {"text": "a"}, id="call_a")))
    client.agents.messages.create(agent.id, input="Shout")

    with pytest.raises(BadRequestError, match="Summarization failed to reduce the number"):
        client.agents.messages.compact(agent.id)

    provider.script("Done.")
    assert answer(client, agent.id, allow("call_a"))[-1]["content"] == "Done."


def test_calls_that_wait_for_a_person_stay_in_view(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    tool = make_tool(SHOUT, default_requires_approval=True)
    agent = make_agent(tool_ids=[tool.id], compaction_settings={"mode": "all"})
    client.agents.messages.create(agent.id, input="Hello?")
    provider.script(Answer("I shout.", ToolCall("shout", {"text": "a"}, id="call_a")))
    client.agents.messages.create(agent.id, input="Shout")

    provider.script("They met.", when=asks_for_summary)
    done = client.agents.messages.compact(agent.id)

    assert (done.summary, done.num_messages_before, done.num_messages_after) == ("They met.", 5, 3)
    provider.script("Done.")
    assert answer(client, agent.id, allow("call_a"))[-1]["content"] == "Done."
    assert provider.requests[-1].refused is None


@pytest.mark.parametrize("way", ["send", "demand"])
def test_a_cancel_hangs_up_on_the_summariser_and_changes_nothing(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent_with_messages: "AgentState",
    model: str,
    pool: ThreadPoolExecutor,
    way: str,
) -> None:
    gate = Gate("never released")
    before = context_ids(client, agent_with_messages.id)
    provider.script(Answer("They ", gate, "talked."), when=asks_for_summary)
    if way == "send":
        provider.script(TOO_LONG[model.split("/", maxsplit=1)[0]])
        path = f"/v1/agents/{agent_with_messages.id}/messages/stream"
        waiting: Any = pool.submit(read, http, path, input="And now?", stream_tokens=True)
    else:
        waiting = pool.submit(client.agents.messages.compact, agent_with_messages.id)
    gate.reached.block()

    (run_id,) = client.agents.messages.cancel(agent_with_messages.id)

    (asked,) = summaries(provider)
    asked.finished.block()
    assert asked.closed_early
    if way == "send":
        assert_ended(waiting.result(), "cancelled")
    else:
        with pytest.raises(ConflictError, match="nothing was changed"):
            waiting.result()
    assert context_ids(client, agent_with_messages.id) == before
    run = client.runs.retrieve(run_id)
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    if way == "send":
        assert_cancelled(client, run_id)
    assert_answers(client, provider, agent_with_messages.id)


def test_a_system_prompt_that_does_not_fit_has_its_own_stop_reason(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
) -> None:
    agent = make_agent(system="Be good. " * 1_000, context_window_limit=1_000)
    provider.script(*[TOO_LONG[model.split("/", maxsplit=1)[0]]] * 2)

    with pytest.raises(BadRequestError, match="system prompt is too large"):
        client.agents.messages.create(agent.id, input="Hello?")
    stop, error = read(http, f"/v1/agents/{agent.id}/messages/stream", input="Hello?")

    assert stop["stop_reason"] == "context_window_overflow_in_system_prompt"
    assert error["error_type"] == "context_window_overflow_in_system_prompt"
    assert error["message"].startswith("Compaction failed because the system prompt is too large")
    (run, _) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("failed", stop["stop_reason"])


def test_a_summariser_that_is_not_to_be_had_is_replaced_by_the_agents_own_model(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState", model: str
) -> None:
    provider.script(HttpError(404, "no such model"), "They talked.", when=asks_for_summary)

    done = client.agents.messages.compact(agent_with_messages.id)

    assert done.summary == "They talked."
    wire, name = model.split("/")
    assert [asked.model for asked in summaries(provider)] == [SUMMARISERS[wire], name]


def test_a_summariser_that_fails_is_reported_to_the_caller(
    client: Letta, provider: ScriptedProvider, agent_with_messages: "AgentState"
) -> None:
    before = context_ids(client, agent_with_messages.id)
    provider.respond_with(lambda _: HttpError(429, "TEST: slow"))

    with pytest.raises(APIStatusError) as caught:
        client.agents.messages.compact(agent_with_messages.id)

    assert caught.value.status_code == 429
    assert "TEST: slow" in str(caught.value)
    assert context_ids(client, agent_with_messages.id) == before
