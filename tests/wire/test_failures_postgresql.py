"""Failed runs through the official client, where they are kept in PostgreSQL (wire-v1 §8.2, lines 50-57)."""

from dataclasses import dataclass

import pytest
from letta_client import APIStatusError, Letta
from tests.server_process import ServerProcess
from tests.wire import test_streaming_failures
from tests.wire.conftest import MODELS
from tests.wire.streams import SAYS_IT_IS_DEPRECATED

from holdfast.testing import Answer, HangUp, HttpError, Scripted, ScriptedProvider

pytestmark = [pytest.mark.slow, SAYS_IT_IS_DEPRECATED]


@pytest.fixture
def server(server_on_postgresql: ServerProcess) -> ServerProcess:
    return server_on_postgresql


@dataclass(frozen=True)
class Failure:
    answer: Scripted
    error_type: str


FAILURES = [
    pytest.param(Failure(HttpError(500, "TEST"), "llm_error"), marks=pytest.mark.wire(50, 51, 52)),
    pytest.param(Failure(HttpError(504, "TEST"), "llm_timeout"), marks=pytest.mark.wire(53)),
    pytest.param(Failure(HttpError(429, "TEST"), "llm_rate_limit"), marks=pytest.mark.wire(54)),
    pytest.param(Failure(HttpError(401, "TEST"), "llm_authentication"), marks=pytest.mark.wire(55)),
    pytest.param(Failure(Answer("TEST ", HangUp()), "llm_error"), id="in the middle"),
]


@pytest.mark.wire(57)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_failed_stream_is_told_and_on_record(
    client: Letta, provider: ScriptedProvider, failure: Failure, background: bool
) -> None:
    agent = client.agents.create(model=MODELS["openai"], include_base_tools=False)
    provider.respond_with(lambda _request: failure.answer)

    with pytest.raises(APIStatusError) as caught:
        list(
            client.agents.messages.stream(
                agent.id, input="Hello?", stream_tokens=True, background=background
            )
        )

    told = caught.value.body
    assert isinstance(told, dict)
    (run,) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    on_record = run.metadata["error"]
    assert isinstance(on_record, dict)
    assert on_record["error_type"] == told["error_type"] == failure.error_type
    assert on_record["detail"] == told["detail"]
    assert on_record["run_id"] == run.id

    provider.respond_with(None)
    reply = client.agents.messages.create(agent.id, input="And now?")
    assert reply.stop_reason.stop_reason == "end_turn"


# Line 56.
test_what_is_nobodys_fault_but_the_loops_is_an_internal_error = (
    test_streaming_failures.test_what_is_nobodys_fault_but_the_loops_is_an_internal_error
)
