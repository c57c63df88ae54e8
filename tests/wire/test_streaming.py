"""The items of a stream, their order and ids; readers that resume, disconnect or stop reading (wire-v1 §4)."""

import json
import socket
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import APIStatusError, BadRequestError, Letta, NotFoundError
from tests.support.client_objects import (
    as_dict,
    as_dicts,
    eventually,
    history,
    kinds,
    message_texts,
)
from tests.support.server_process import ServerProcess
from tests.support.stream_items import (
    IGNORE_DEPRECATION,
    assert_ended,
    kinds_in_turn,
    message_keys,
    read,
    read_until,
    seq_ids,
    text_of,
    without_dates,
)
from tests.support.tool_sources import SHOUT, WHISPER

from holdfast.testing import (
    Answer,
    Gate,
    HttpError,
    ScriptedProvider,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

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
    # The streamed messages equal the listed ones; only background streams have numbers.
    assert message_keys(messages) == message_keys(history(client, shouter.id)[1:])
    nothing = [None] * len(messages)
    assert seq_ids(items) == (list(range(1, len(messages) + 1)) if background else nothing)
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

    assert as_dict(next(stream))["reasoning"] == "Hm"
    thinking.release()
    more = read_until(stream, "One")
    assert kinds_in_turn(more) == ["reasoning_message", "assistant_message"]
    assert client.runs.list(agent_id=agent.id).items[0].status == "running"
    speaking.release()
    rest = as_dicts(stream)
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
    # What arrived from the provider in one read may be one event.
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

    items = as_dicts(
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
    assert message_keys(items) == message_keys(history(client, agent.id)[1:])


def test_a_send_may_be_turned_into_a_stream(
    client: Letta, provider: ScriptedProvider, shouter: "AgentState"
) -> None:
    provider.script(*TOOL_LOOP)

    with client.agents.messages.create(shouter.id, input="Shout", streaming=True) as stream:
        told = kinds(stream)

    assert told[-3:] == ["assistant_message", "stop_reason", "usage_statistics"]
    (run,) = client.runs.list(agent_id=shouter.id).items
    assert as_dict(run)["metadata"]["run_type"] == "send_message"


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
    word = as_dict(next(stream))
    with http.stream("POST", f"/v1/runs/{word['run_id']}/stream", json=quiet) as other:
        ping = as_dict(next(stream))
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
    # A ping is sent to one reader only and is not part of the run.
    assert [item.get("seq_id") for item in as_dicts(stream)] == [2, None, None]


# Readers connect late, reconnect, disconnect and stop reading without affecting the run.

UNKNOWN_RUN = "run-00000000-0000-4000-8000-000000000000"


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool") -> "AgentState":
    return make_agent(tool_ids=[make_tool(SHOUT).id])


def status_of(client: Letta, run_id: str) -> str:
    return str(client.runs.retrieve(run_id).status)


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
@pytest.mark.parametrize("stream_tokens", [False, True], ids=["steps", "tokens"])
def test_a_finished_run_can_be_read_from_any_number(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: "AgentState",
    stream_tokens: bool,
    background: bool,
) -> None:
    provider.script(
        Answer(Thinking("Well."), "I shout.", ToolCall("shout", {"text": "hey"})), "Done."
    )
    path = f"/v1/agents/{agent.id}/messages/stream"
    wishes = {"stream_tokens": stream_tokens, "background": background}
    first = read(http, path, input="Shout", **wishes)
    run_id = first[0]["run_id"]

    again = read(http, f"/v1/runs/{run_id}/stream", starting_after=0)

    assert seq_ids(again) == list(range(1, len(again) - 1))
    assert without_dates(again, "seq_id") == without_dates(first, "seq_id")
    for cursor in range(1, len(again) - 1):
        rest = client.runs.messages.stream(run_id, starting_after=cursor)
        assert without_dates(as_dicts(rest)) == without_dates(again)[cursor:]


def test_a_live_run_is_followed_from_any_number_by_any_number_of_readers(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    gate = Gate("half-way")
    provider.script(Answer("One", gate, " two"))

    first = client.agents.messages.stream(
        agent.id, input="Count", stream_tokens=True, background=True
    )
    begun = read_until(first, "One")
    run_id = begun[0]["run_id"]
    second = client.runs.messages.stream(run_id, starting_after=0)
    also_begun = read_until(second, "One")
    third = client.runs.messages.stream(run_id, starting_after=begun[-1]["seq_id"])
    gate.release()

    rest = without_dates(as_dicts(first))
    assert text_of(rest) == " two"
    assert_ended(rest, "end_turn")
    assert without_dates(also_begun) == without_dates(begun)
    assert without_dates(as_dicts(second)) == without_dates(as_dicts(third)) == rest


def test_a_failed_run_fails_again_for_each_reader(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    broken = Answer("I was about", HttpError(500, "TEST: Mocked error"))
    provider.respond_with(lambda _request: broken)
    path = f"/v1/agents/{agent.id}/messages/stream"
    first = read(http, path, input="Hello?", stream_tokens=True, background=True)
    run_id = first[0]["run_id"]

    again = client.runs.messages.stream(run_id, starting_after=0)

    assert text_of(read_until(again, "I was about")) == "I was about"
    assert as_dict(next(again))["stop_reason"] == "llm_api_error"
    with pytest.raises(APIStatusError, match="TEST: Mocked error"):
        next(again)
    replayed = read(http, f"/v1/runs/{run_id}/stream", starting_after=first[0]["seq_id"])
    assert without_dates(replayed) == without_dates(first[1:])


def test_a_cursor_or_a_run_that_cannot_be_is_refused(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    provider.script("Hello.")
    (message, *_) = as_dicts(client.agents.messages.stream(agent.id, input="Hello?"))

    with pytest.raises(BadRequestError, match="starting_after"):
        client.runs.messages.stream(message["run_id"], starting_after=-1)
    with pytest.raises(NotFoundError):
        client.runs.messages.stream(UNKNOWN_RUN)
    with pytest.raises(BadRequestError, match="Invalid run ID format"):
        client.runs.messages.stream("nonsense")
    # A reader past the end gets no more events.
    assert as_dicts(client.runs.messages.stream(message["run_id"], starting_after=1_000_000)) == []


def test_an_async_send_answers_at_once_and_can_be_followed_to_its_end(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    gate = Gate("before the answer")
    provider.script(Answer(gate, "Hello there."))

    run = client.agents.messages.create_async(agent.id, input="Hello?")
    assert (run.status, run.background, run.completed_at) == ("created", True, None)
    gate.reached.block()
    stream = client.runs.messages.stream(run.id)
    gate.release()

    items = as_dicts(stream)
    assert kinds_in_turn(items) == ["assistant_message", "stop_reason", "usage_statistics"]
    assert_ended(items, "end_turn")
    ended = client.runs.retrieve(run.id)
    assert (ended.status, ended.stop_reason) == ("completed", "end_turn")
    assert ended.completed_at is not None
    rows = as_dicts(client.runs.messages.list(run.id).items)
    assert [row["content"] for row in rows] == ["Hello?", "Hello there."]


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_reader_that_leaves_leaves_the_run_alone(
    client: Letta,
    provider: ScriptedProvider,
    agent: "AgentState",
    background: bool,
) -> None:
    gate = Gate("half-way")
    provider.script(Answer("One", gate, " two"))
    stream = client.agents.messages.stream(
        agent.id, input="Count", stream_tokens=True, background=background
    )
    run_id = read_until(stream, "One")[0]["run_id"]

    stream.close()
    again = client.runs.messages.stream(run_id)
    gate.release()

    items = as_dicts(again)
    assert text_of(items) == "One two"
    assert_ended(items, "end_turn")
    assert not provider.requests[0].closed_early
    assert status_of(client, run_id) == "completed"
    assert message_texts(client, agent.id) == ["Count", "One two"]


def test_a_reader_may_take_its_run_along(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    provider.script(Answer("One", Gate("never released"), " two"))
    stream = client.agents.messages.stream(
        agent.id, input="Count", stream_tokens=True, extra_body={"on_disconnect": "cancel"}
    )
    run_id = read_until(stream, "One")[0]["run_id"]

    stream.close()

    provider.requests[0].finished.block()
    assert provider.requests[0].closed_early
    eventually(lambda: status_of(client, run_id), lambda status: status == "cancelled")
    assert_ended(as_dicts(client.runs.messages.stream(run_id)), "cancelled")
    assert message_texts(client, agent.id) == ["Count", "One"]


def test_a_reader_that_stops_reading_harms_nobody_and_misses_nothing(
    client: Letta, server: ServerProcess, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    # More than the buffers between server and reader hold.
    chunk, times = "x" * 100_000, 80
    provider.script(Answer(Text(chunks=[chunk] * times)))
    small = httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)])
    with (
        httpx.Client(base_url=server.address, transport=small, timeout=60) as plain,
        plain.stream(
            "POST",
            f"/v1/agents/{agent.id}/messages/stream",
            json={"input": "Go on", "stream_tokens": True, "background": True},
        ) as stalled,
    ):
        (run,) = client.runs.list(agent_id=agent.id).items

        other = as_dicts(client.runs.messages.stream(run.id))

        assert len(text_of(other)) == len(chunk) * times
        assert status_of(client, run.id) == "completed"
        heard = stalled.read().decode()
    assert heard.count("x" * 1_000) == len(chunk) * times // 1_000
    assert heard.count('"stop_reason":"end_turn"') == 1
    assert heard.endswith("data: [DONE]\n\n")
