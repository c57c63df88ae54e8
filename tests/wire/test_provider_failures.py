"""A provider that fails: the caller is told, the run is on record, the history is as it was (wire-v1 §1.11, §5.7, §7.2)."""

from typing import TYPE_CHECKING

import pytest
from letta_client import APIStatusError, Letta
from tests.server_process import ServerProcess
from tests.wire.reading import history, listed, shown, spoken
from tests.wire.sources import SHOUT

from holdfast.testing import (
    Answer,
    EmptyAnswer,
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
    from tests.wire.conftest import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

# What the provider does, the status, the type in the HTTP body (none: the plain family) and on the run.
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
        assert body.keys() == {"detail"}
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
    assert shown(run)["metadata"]["error"]["error_type"] == "llm_empty_response"


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
    assert spoken(client, agent.id) == ["Hello?", "Hello."]
    assert after.message_ids == before.message_ids
    assert after.last_stop_reason == "llm_api_error"
    # The run still shows what was asked.
    (failed,) = client.runs.list(agent_id=agent.id, statuses=["failed"]).items
    assert [row["content"] for row in shown(failed)["input"]] == ["Are you well?"]
    assert client.runs.messages.list(failed.id).items == []

    provider.respond_with(None)
    provider.script("I am back.")
    reply = client.agents.messages.create(agent.id, input="And now?")
    assert listed(reply.messages)[-1]["content"] == "I am back."
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
    assert shown(reply.stop_reason)["stop_reason"] == "end_turn"
    assert provider.requests[-1].refused is None


def test_a_context_that_does_not_fit_is_told_as_such(
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


def test_the_key_of_the_provider_is_never_told(
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
    """The server has asked the provider again already, and the turn may have done things."""
    agent = make_agent()
    provider.respond_with(lambda _request: answer)

    with Letta(base_url=server.address) as patient, pytest.raises(APIStatusError):
        patient.agents.messages.create(agent.id, input="Hello?")

    assert len(client.runs.list(agent_id=agent.id).items) == 1
    assert len(provider.requests) == 1
