"""Provider failures, for a caller that waits and for one that streams (wire-v1 §1.11, §4.2, §4.6, §5.7, §7.2)."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import APIStatusError, Letta
from tests.support.client_objects import as_dict, as_dicts, eventually, history, message_texts
from tests.support.server_process import ServerProcess
from tests.support.stream_items import (
    IGNORE_DEPRECATION,
    assert_ended,
    kinds_in_turn,
    read,
    seq_ids,
    text_of,
)
from tests.support.tool_sources import SHOUT

from holdfast.testing import (
    Answer,
    EmptyAnswer,
    Gate,
    HangUp,
    HttpError,
    MalformedSse,
    ResetConnection,
    Scripted,
    ScriptedProvider,
    ToolCall,
    TruncatedStream,
)

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

# The provider's failure, the status, the type in the HTTP body (none: a plain error) and on the run.
FAILURES = {
    "401": (HttpError(401, "TEST: key"), 401, "llm_authentication", "llm_authentication"),
    "402": (HttpError(402, "TEST: pay"), 402, "llm_insufficient_credits", "llm_error"),
    "429": (HttpError(429, "TEST: slow"), 429, "llm_rate_limit", "llm_rate_limit"),
    "400": (HttpError(400, "TEST: bad"), 400, "llm_bad_request", "llm_error"),
    "500": (HttpError(500, "TEST: oops"), 500, "llm_error", "llm_error"),
    "503": (HttpError(503, "TEST: full"), 503, None, "llm_error"),
    "504": (HttpError(504, "TEST: late"), 504, "llm_timeout", "llm_timeout"),
}
BROKEN: dict[str, Scripted] = {
    "hangs up in the middle": Answer("I was about to", HangUp()),
    "fails in the middle": Answer("I was about to", HttpError(500, "TEST: middle")),
    "resets the connection": ResetConnection(),
    "sends no JSON": MalformedSse(),
    "breaks off": TruncatedStream(2, Answer("I was about to say something longer.")),
    "sends no body": EmptyAnswer(),
    "says nothing": Answer(),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_each_kind_of_failure_has_its_status_and_body(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
    failure: tuple[HttpError, int, str | None, str],
) -> None:
    answer, status, body_type, error_type = failure
    agent = make_agent()
    provider.respond_with(lambda _request: answer)

    with pytest.raises(APIStatusError) as caught:
        client.agents.messages.create(agent.id, input="Hello?")

    assert caught.value.status_code == status
    body = caught.value.response.json()
    if body_type is None:
        assert body.keys() == {"detail", "run_id"}
        assert answer.message in body["detail"]
    else:
        assert body["error"]["type"] == body_type
        assert body["error"]["message"]
        assert answer.message in body["error"]["detail"]
    (run,) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    error = run.metadata["error"]
    assert isinstance(error, dict)
    assert error["error_type"] == error_type
    assert answer.message in error["detail"]
    assert (error["message_type"], error["run_id"]) == ("error_message", run.id)


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_answer_is_a_500(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
    answer: Scripted,
) -> None:
    agent = make_agent()
    provider.respond_with(lambda _request: answer)

    with pytest.raises(APIStatusError) as caught:
        client.agents.messages.create(agent.id, input="Hello?")

    assert caught.value.status_code == 500
    assert caught.value.response.json()["error"]["type"].startswith("llm_")
    (run,) = client.runs.list(agent_id=agent.id).items
    assert run.status == "failed"
    assert history(client, agent.id) == []


def test_a_model_that_says_nothing_is_an_invalid_response(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script(Answer())

    with pytest.raises(APIStatusError, match="LLM returned an empty response"):
        client.agents.messages.create(agent.id, input="Hello?")

    (run,) = client.runs.list(agent_id=agent.id).items
    assert run.stop_reason == "invalid_llm_response"
    assert run.metadata is not None
    assert as_dict(run)["metadata"]["error"]["error_type"] == "llm_empty_response"


def test_a_failure_before_anything_was_said_leaves_the_history_as_it_was(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script("Hello.")
    client.agents.messages.create(agent.id, input="Hello?")
    before = client.agents.retrieve(agent.id)
    provider.respond_with(lambda _request: HttpError(500, "TEST: broken"))

    with pytest.raises(APIStatusError):
        client.agents.messages.create(agent.id, input="Are you well?")

    after = client.agents.retrieve(agent.id)
    assert message_texts(client, agent.id) == ["Hello?", "Hello."]
    assert after.message_ids == before.message_ids
    assert after.last_stop_reason == "llm_api_error"
    # The run still shows its input.
    (failed,) = client.runs.list(agent_id=agent.id, statuses=["failed"]).items
    assert [row["content"] for row in as_dict(failed)["input"]] == ["Are you well?"]
    assert client.runs.messages.list(failed.id).items == []

    provider.respond_with(None)
    provider.script("I am back.")
    reply = client.agents.messages.create(agent.id, input="And now?")
    assert as_dicts(reply.messages)[-1]["content"] == "I am back."
    assert "Are you well?" not in str(provider.requests[-1].messages)
    assert provider.requests[-1].refused is None


def test_a_failure_after_a_tool_keeps_what_was_done(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(Answer(ToolCall("shout", {"text": "a"})))
    provider.respond_with(lambda _request: HttpError(500, "TEST: broken"))

    with pytest.raises(APIStatusError, match="TEST: broken"):
        client.agents.messages.create(agent.id, input="Shout")

    assert [row["message_type"] for row in history(client, agent.id)] == [
        "user_message",
        "tool_call_message",
        "tool_return_message",
    ]
    provider.respond_with(None)
    reply = client.agents.messages.create(agent.id, input="Go on")
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    assert provider.requests[-1].refused is None


def test_a_context_that_does_not_fit_is_reported_as_such(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    words = {
        "openai": HttpError(
            400, "This model's maximum context length is 10 tokens.", code="context_length_exceeded"
        ),
        "anthropic": HttpError(400, "prompt is too long: 11 tokens > 10 maximum"),
    }
    provider.respond_with(lambda _request: words[model.partition("/")[0]])

    with pytest.raises(APIStatusError) as caught:
        client.agents.messages.create(agent.id, input="A long story")

    assert caught.value.status_code == 400
    assert caught.value.response.json()["detail"].startswith("CONTEXT_WINDOW_EXCEEDED: ")


def test_the_key_of_the_provider_is_never_shown(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.respond_with(
        lambda _request: HttpError(401, "Incorrect API key provided: sk-abcdefghijkl.")
    )

    with pytest.raises(APIStatusError) as caught:
        client.agents.messages.create(agent.id, input="Hello?")

    assert "sk-abcdefghijkl" not in caught.value.response.text


@pytest.mark.parametrize("answer", [HttpError(500, "TEST"), HttpError(429, "TEST")])
def test_a_client_that_tries_again_by_itself_makes_no_second_run(
    server: ServerProcess,
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    answer: HttpError,
) -> None:
    """The server has retried already, and the turn may have had effects."""
    agent = make_agent()
    provider.respond_with(lambda _request: answer)

    with Letta(base_url=server.address) as patient, pytest.raises(APIStatusError):
        patient.agents.messages.create(agent.id, input="Hello?")

    assert len(client.runs.list(agent_id=agent.id).items) == 1
    assert len(provider.requests) == 1


# Runs that fail while a client reads the stream.

WAIT_SECONDS = 30


@pytest.mark.both_databases
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
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_failure_before_the_first_token_is_reported_and_stored(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
    status: int,
    error_type: str,
    background: bool,
) -> None:
    agent = make_agent()
    provider.respond_with(lambda _request: HttpError(status, "TEST: Mocked error"))

    stop, error = read(
        http,
        f"/v1/agents/{agent.id}/messages/stream",
        input="Hello?",
        stream_tokens=True,
        background=background,
    )

    assert stop == {"message_type": "stop_reason", "stop_reason": "llm_api_error"}
    (run,) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    # The number is the event's; a client that did not request numbers does not get it.
    assert run.metadata["error"] == error | {"seq_id": None}
    assert (error["error_type"], error["run_id"]) == (error_type, run.id)
    assert "TEST: Mocked error" in error["detail"]
    assert error["message"]
    assert history(client, agent.id) == []
    provider.respond_with(None)
    reply = client.agents.messages.create(agent.id, input="And now?")
    assert reply.stop_reason.stop_reason == "end_turn"


@pytest.mark.both_databases
@pytest.mark.wire(56, 57)
def test_a_bug_of_the_agent_loop_is_an_internal_error(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    pool: ThreadPoolExecutor,
) -> None:
    """The previous run pauses while this one waits for its turn, so this one fails only once it has started."""
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


@pytest.mark.both_databases
@pytest.mark.wire(149)
@pytest.mark.parametrize(
    ("failure", "detail"),
    [(HttpError(500, "TEST: Mocked error"), "TEST: Mocked error"), (HangUp(), "")],
    ids=["error", "hang-up"],
)
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_failure_in_the_middle_ends_a_stream_that_has_begun(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
    failure: HttpError | HangUp,
    detail: str,
    background: bool,
) -> None:
    agent = make_agent()
    broken = Answer("I was about", failure)
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
    assert detail in items[-1]["detail"]
    assert items[-1]["error_type"] == "llm_error"
    count = len(items) - 1
    assert seq_ids(items) == (list(range(1, count + 1)) if background else [None] * count)
    run = client.runs.retrieve(items[0]["run_id"])
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    assert as_dict(run)["metadata"]["error"]["detail"] == items[-1]["detail"]
    provider.respond_with(None)
    provider.script("Here I am.")
    assert_ended(as_dicts(client.agents.messages.stream(agent.id, input="And now?")), "end_turn")
    assert message_texts(client, agent.id) == ["And now?", "Here I am."]


@pytest.mark.both_databases
@pytest.mark.wire(149)
def test_the_client_raises_after_it_has_shown_why_the_run_stopped(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.respond_with(lambda _request: HttpError(500, "TEST: Mocked error"))

    stream = client.agents.messages.stream(agent.id, input="Hello?", stream_tokens=True)

    assert as_dict(next(stream))["stop_reason"] == "llm_api_error"
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
