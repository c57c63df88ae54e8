"""Runs that fail while somebody reads along (wire-v1 §4.2, §4.6, §5.7)."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import APIStatusError, Letta
from tests.wire.reading import eventually, history, listed, shown, spoken
from tests.wire.sources import SHOUT
from tests.wire.streams import (
    SAYS_IT_IS_DEPRECATED,
    assert_ended,
    kinds_in_turn,
    numbers,
    read,
    text_of,
)

from holdfast.testing import Answer, Gate, HttpError, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.wire.conftest import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, SAYS_IT_IS_DEPRECATED]

WAIT_SECONDS = 30


@pytest.mark.wire(57, 149)
@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        pytest.param(500, "llm_error", marks=pytest.mark.wire(50, 51, 52)),
        pytest.param(504, "llm_timeout", marks=pytest.mark.wire(53)),
        pytest.param(429, "llm_rate_limit", marks=pytest.mark.wire(54)),
        pytest.param(401, "llm_authentication", marks=pytest.mark.wire(55)),
    ],
)
def test_a_failure_before_the_first_token_is_told_and_on_record(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
    status: int,
    error_type: str,
) -> None:
    agent = make_agent()
    provider.respond_with(lambda _request: HttpError(status, "TEST: Mocked error"))

    stop, error = read(
        http, f"/v1/agents/{agent.id}/messages/stream", input="Hello?", stream_tokens=True
    )

    assert stop == {"message_type": "stop_reason", "stop_reason": "llm_api_error"}
    (run,) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    assert run.metadata["error"] == error
    assert (error["error_type"], error["run_id"]) == (error_type, run.id)
    assert "TEST: Mocked error" in error["detail"]
    assert error["message"]
    assert history(client, agent.id) == []


@pytest.mark.wire(56, 57)
def test_what_is_nobodys_fault_but_the_loops_is_an_internal_error(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    pool: ThreadPoolExecutor,
) -> None:
    """The run before pauses while this one waits for its turn: it finds that out when it is under way."""
    agent = make_agent(tool_ids=[make_tool(SHOUT, default_requires_approval=True).id])
    gate = Gate("before the pause")
    provider.script(Answer(gate, ToolCall("shout", {"text": "hi"})))
    path = f"/v1/agents/{agent.id}/messages/stream"
    first = pool.submit(read, http, path, input="One")
    gate.reached.block()
    second = pool.submit(read, http, path, input="Two", stream_tokens=True)
    eventually(lambda: client.runs.list(agent_id=agent.id).items, lambda runs: len(runs) == 2)
    gate.release()

    assert_ended(first.result(WAIT_SECONDS), "requires_approval")
    stop, error = second.result(WAIT_SECONDS)
    assert stop["stop_reason"] == "error"
    assert error["error_type"] == "internal_error"
    assert "Please approve or deny the pending request before continuing" in error["message"]
    run = client.runs.retrieve(error["run_id"])
    assert run.status == "failed"
    assert run.metadata is not None
    assert run.metadata["error"] == error


@pytest.mark.wire(149)
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_failure_in_the_middle_ends_a_stream_that_has_begun(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
    background: bool,
) -> None:
    agent = make_agent()
    broken = Answer("I was about", HttpError(500, "TEST: Mocked error"))
    provider.respond_with(lambda _request: broken)

    items = read(
        http,
        f"/v1/agents/{agent.id}/messages/stream",
        input="Hello?",
        stream_tokens=True,
        background=background,
    )

    assert kinds_in_turn(items) == ["assistant_message", "stop_reason", "error_message"]
    assert text_of(items) == "I was about"
    assert "TEST: Mocked error" in items[-1]["detail"]
    count = len(items) - 1
    assert numbers(items) == (list(range(1, count + 1)) if background else [None] * count)
    run = client.runs.retrieve(items[0]["run_id"])
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    assert shown(run)["metadata"]["error"]["detail"] == items[-1]["detail"]
    provider.respond_with(None)
    provider.script("Here I am.")
    assert_ended(listed(client.agents.messages.stream(agent.id, input="And now?")), "end_turn")
    assert spoken(client, agent.id) == ["And now?", "Here I am."]


@pytest.mark.wire(149)
def test_the_client_raises_after_it_has_shown_why_the_run_stopped(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.respond_with(lambda _request: HttpError(500, "TEST: Mocked error"))

    stream = client.agents.messages.stream(agent.id, input="Hello?", stream_tokens=True)

    assert shown(next(stream))["stop_reason"] == "llm_api_error"
    with pytest.raises(APIStatusError, match="TEST: Mocked error") as caught:
        next(stream)
    assert caught.value.status_code == 200


def test_what_is_wrong_with_the_request_is_an_http_error_before_the_stream(
    client: Letta, http: httpx.Client, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    path = f"/v1/agents/{agent.id}/messages/stream"

    assert http.post(path, json={"input": "a", "messages": []}).status_code == 422
    assert http.post(path, json={"input": "a", "stream_tokens": "maybe"}).status_code == 422
    nobody = "agent-00000000-0000-4000-8000-000000000000"
    assert http.post(path.replace(agent.id, nobody), json={"input": "a"}).status_code == 404
    assert client.runs.list(agent_id=agent.id).items == []
