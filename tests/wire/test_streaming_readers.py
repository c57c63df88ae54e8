"""Readers come late, come back, leave and stop reading; the run does not mind (wire-v1 §4.3, §4.8)."""

import socket
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import APIStatusError, BadRequestError, Letta, NotFoundError
from tests.server_process import ServerProcess
from tests.wire.reading import eventually, listed, shown, spoken
from tests.wire.sources import SHOUT
from tests.wire.streams import (
    SAYS_IT_IS_DEPRECATED,
    assert_ended,
    kinds_in_turn,
    numbers,
    read,
    read_until,
    text_of,
    undated,
)

from holdfast.testing import Answer, Gate, HttpError, ScriptedProvider, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.wire.conftest import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, SAYS_IT_IS_DEPRECATED]

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

    assert numbers(again) == list(range(1, len(again) - 1))
    assert undated(again, "seq_id") == undated(first, "seq_id")
    for cursor in range(1, len(again) - 1):
        rest = client.runs.messages.stream(run_id, starting_after=cursor)
        assert undated(listed(rest)) == undated(again)[cursor:]


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

    rest = undated(listed(first))
    assert text_of(rest) == " two"
    assert_ended(rest, "end_turn")
    assert undated(also_begun) == undated(begun)
    assert undated(listed(second)) == undated(listed(third)) == rest


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
    assert shown(next(again))["stop_reason"] == "llm_api_error"
    with pytest.raises(APIStatusError, match="TEST: Mocked error"):
        next(again)
    replayed = read(http, f"/v1/runs/{run_id}/stream", starting_after=first[0]["seq_id"])
    assert undated(replayed) == undated(first[1:])


def test_a_cursor_or_a_run_that_cannot_be_is_refused(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    provider.script("Hello.")
    (message, *_) = listed(client.agents.messages.stream(agent.id, input="Hello?"))

    with pytest.raises(BadRequestError, match="starting_after"):
        client.runs.messages.stream(message["run_id"], starting_after=-1)
    with pytest.raises(NotFoundError):
        client.runs.messages.stream(UNKNOWN_RUN)
    with pytest.raises(BadRequestError, match="Invalid run ID format"):
        client.runs.messages.stream("nonsense")
    # Who is past the end has heard everything.
    assert listed(client.runs.messages.stream(message["run_id"], starting_after=1_000_000)) == []


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

    items = listed(stream)
    assert kinds_in_turn(items) == ["assistant_message", "stop_reason", "usage_statistics"]
    assert_ended(items, "end_turn")
    ended = client.runs.retrieve(run.id)
    assert (ended.status, ended.stop_reason) == ("completed", "end_turn")
    assert ended.completed_at is not None
    rows = listed(client.runs.messages.list(run.id).items)
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

    items = listed(again)
    assert text_of(items) == "One two"
    assert_ended(items, "end_turn")
    assert not provider.requests[0].closed_early
    assert status_of(client, run_id) == "completed"
    assert spoken(client, agent.id) == ["Count", "One two"]


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
    assert_ended(listed(client.runs.messages.stream(run_id)), "cancelled")
    assert spoken(client, agent.id) == ["Count", "One"]


def test_a_reader_that_stops_reading_harms_nobody_and_misses_nothing(
    client: Letta, server: ServerProcess, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    # More than the buffers between the server and a reader take in.
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

        other = listed(client.runs.messages.stream(run.id))

        assert len(text_of(other)) == len(chunk) * times
        assert status_of(client, run.id) == "completed"
        heard = stalled.read().decode()
    assert heard.count("x" * 1_000) == len(chunk) * times // 1_000
    assert heard.count('"stop_reason":"end_turn"') == 1
    assert heard.endswith("data: [DONE]\n\n")
