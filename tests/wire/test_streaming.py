"""What is streamed, in which order, under which ids (wire-v1 §4.1-§4.5)."""

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import Letta
from tests.wire.reading import history, kinds, listed, shown
from tests.wire.sources import SHOUT, WHISPER
from tests.wire.streams import (
    SAYS_IT_IS_DEPRECATED,
    assert_ended,
    kinds_in_turn,
    numbers,
    places,
    read,
    read_until,
    text_of,
)

from holdfast.testing import Answer, Gate, ScriptedProvider, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.wire.conftest import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, SAYS_IT_IS_DEPRECATED]

CALL = ToolCall("shout", {"text": "hey, you over there"}, id="call_1")
TOOL_LOOP = (
    Answer(Thinking("Let me see."), "I will shout.", CALL, usage=Usage(100, 20)),
    Answer("It said HEY!", usage=Usage(200, 7)),
)


@pytest.fixture
def shouter(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> "AgentState":
    return make_agent(tool_ids=[make_tool(SHOUT).id])


@pytest.mark.wire(148)
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
@pytest.mark.parametrize("stream_tokens", [False, True], ids=["steps", "tokens"])
def test_a_stream_tells_the_steps_then_once_why_it_stopped_then_the_usage(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    shouter: "AgentState",
    stream_tokens: bool,
    background: bool,
) -> None:
    provider.script(*TOOL_LOOP)

    items = read(
        http,
        f"/v1/agents/{shouter.id}/messages/stream",
        input="Shout",
        stream_tokens=stream_tokens,
        background=background,
    )

    assert kinds_in_turn(items) == [
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert_ended(items, "end_turn")
    assert len(items) > 7 if stream_tokens else len(items) == 7
    assert text_of(items) == "I will shout.It said HEY!"
    *messages, stop, usage = items
    assert stop == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (300, 27)
    assert usage["step_count"] == 2
    # What is streamed is what is listed, and the numbers are for those who may come back.
    assert places(messages) == places(history(client, shouter.id)[1:])
    nothing = [None] * len(messages)
    assert numbers(items) == (list(range(1, len(messages) + 1)) if background else nothing)
    (run,) = client.runs.list(agent_id=shouter.id).items
    assert {message["run_id"] for message in messages} == {run.id}
    assert (run.status, run.background) == ("completed", background)


def test_a_token_is_shown_before_the_next_one_exists(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    thinking, speaking = Gate("after the first thought"), Gate("after the first word")
    provider.script(Answer(Thinking("Hm"), thinking, Thinking(", well."), "One", speaking, " two."))

    stream = client.agents.messages.stream(agent.id, input="Count", stream_tokens=True)

    assert shown(next(stream))["reasoning"] == "Hm"
    thinking.release()
    more = read_until(stream, "One")
    assert kinds_in_turn(more) == ["reasoning_message", "assistant_message"]
    assert client.runs.list(agent_id=agent.id).items[0].status == "running"
    speaking.release()
    rest = listed(stream)
    assert rest[0]["content"] == " two."
    assert_ended(rest, "end_turn")


def test_a_call_comes_name_first_then_its_arguments_after_it(
    http: httpx.Client, provider: ScriptedProvider, shouter: "AgentState"
) -> None:
    provider.script(*TOOL_LOOP)

    items = read(
        http, f"/v1/agents/{shouter.id}/messages/stream", input="Shout", stream_tokens=True
    )

    chunks = [item for item in items if item["message_type"] == "tool_call_message"]
    assert all(chunk["tool_call"] == chunk["tool_calls"] for chunk in chunks)
    # What came from the provider at once may be shown at once.
    first, *rest = [chunk["tool_call"] for chunk in chunks]
    assert first == {"name": "shout", "arguments": None, "tool_call_id": "call_1"}
    assert {delta["tool_call_id"] for delta in rest} == {"call_1"}
    assert json.loads("".join(delta["arguments"] for delta in rest)) == CALL.arguments
    (result,) = [item for item in items if item["message_type"] == "tool_return_message"]
    assert (result["status"], result["tool_return"]) == ("success", "HEY, YOU OVER THERE!")


@pytest.mark.wire(70, 71)
@pytest.mark.parametrize("stream_tokens", [False, True], ids=["steps", "tokens"])
def test_calls_are_told_apart_by_whether_a_person_must_allow_them(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
    stream_tokens: bool,
) -> None:
    held = make_tool(SHOUT, default_requires_approval=True)
    agent = make_agent(tool_ids=[held.id, make_tool(WHISPER).id], parallel_tool_calls=True)
    free = ToolCall("whisper", {"text": "psst"}, id="call_2")
    provider.script(Answer(Thinking("Both."), free, CALL))

    items = listed(
        client.agents.messages.stream(agent.id, input="Both", stream_tokens=stream_tokens)
    )

    assert kinds_in_turn(items) == [
        "reasoning_message",
        "tool_call_message",
        "approval_request_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert_ended(items, "requires_approval")
    first = next(i for i in items if i["message_type"] == "approval_request_message")
    assert (first["tool_call"]["name"], first["tool_call"]["tool_call_id"]) == ("shout", "call_1")
    assert first["otid"] == first["id"]
    assert places(items) == places(history(client, agent.id)[1:])


def test_a_send_may_be_turned_into_a_stream(
    client: Letta, provider: ScriptedProvider, shouter: "AgentState"
) -> None:
    provider.script(*TOOL_LOOP)

    with client.agents.messages.create(shouter.id, input="Shout", streaming=True) as stream:
        told = kinds(stream)

    assert told[-3:] == ["assistant_message", "stop_reason", "usage_statistics"]
    (run,) = client.runs.list(agent_id=shouter.id).items
    assert shown(run)["metadata"]["run_type"] == "send_message"


@pytest.mark.wire(148)
@pytest.mark.parametrize("stream_tokens", [False, True], ids=["steps", "tokens"])
def test_a_filter_holds_for_messages_and_nothing_else(
    client: Letta, provider: ScriptedProvider, shouter: "AgentState", stream_tokens: bool
) -> None:
    provider.script(*TOOL_LOOP)

    stream = client.agents.messages.stream(
        shouter.id,
        input="Shout",
        stream_tokens=stream_tokens,
        include_return_message_types=["tool_return_message"],
    )

    assert kinds(stream) == ["tool_return_message", "stop_reason", "usage_statistics"]
    assert len(history(client, shouter.id)) == 6


def test_a_long_silence_is_filled_for_those_who_wish_it(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    gate = Gate("the silence")
    provider.script(Answer("One", gate, " two."))
    quiet = {"include_pings": False}

    stream = client.agents.messages.stream(
        agent.id, input="Count", stream_tokens=True, background=True
    )
    word = shown(next(stream))
    with http.stream("POST", f"/v1/runs/{word['run_id']}/stream", json=quiet) as other:
        ping = shown(next(stream))
        lines = other.iter_lines()
        silence = [next(lines) for _ in range(3)]
        gate.release()
        rest = [line for line in lines if line]

    assert (word["message_type"], word["seq_id"]) == ("assistant_message", 1)
    assert (ping["message_type"], ping["run_id"]) == ("ping", word["run_id"])
    assert ping["seq_id"] == 1
    assert silence[2].startswith(": ")
    assert not any('"ping"' in line for line in rest)
    assert rest[-1] == "data: [DONE]"
    # A ping is for its reader alone: it has no place in the run.
    assert [item.get("seq_id") for item in listed(stream)] == [2, None, None]
