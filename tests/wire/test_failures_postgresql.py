"""Failed runs through the official client, where they are kept in PostgreSQL (wire-v1 §8.2, lines 50-57)."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from letta_client import APIStatusError, Letta
from sqlalchemy import make_url
from tests.server_process import ServerProcess
from tests.wire.conftest import MODELS, provider_variables
from tests.wire.streams import SAYS_IT_IS_DEPRECATED

from holdfast.testing import Answer, HangUp, HttpError, Scripted, ScriptedProvider

pytestmark = [pytest.mark.slow, SAYS_IT_IS_DEPRECATED]


@pytest.fixture(scope="module")
def letta(
    postgres_server: str,
    running_provider: ScriptedProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Letta]:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE failures")
    url = make_url(postgres_server).set(database="failures")
    variables = {"HOLDFAST_DATABASE_URL": url.render_as_string(hide_password=False)}
    home = tmp_path_factory.mktemp("home")
    server = ServerProcess.start(home, **provider_variables(running_provider) | variables)
    with Letta(base_url=server.address, max_retries=0, timeout=60) as client:
        yield client
    server.stop()


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
    letta: Letta, provider: ScriptedProvider, failure: Failure, background: bool
) -> None:
    agent = letta.agents.create(model=MODELS["openai"], include_base_tools=False)
    provider.respond_with(lambda _request: failure.answer)

    with pytest.raises(APIStatusError) as caught:
        list(
            letta.agents.messages.stream(
                agent.id, input="Hello?", stream_tokens=True, background=background
            )
        )

    told = caught.value.body
    assert isinstance(told, dict)
    (run,) = letta.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    assert run.metadata is not None
    on_record = run.metadata["error"]
    assert isinstance(on_record, dict)
    assert on_record["error_type"] == told["error_type"] == failure.error_type
    assert on_record["detail"] == told["detail"]
    assert on_record["run_id"] == run.id

    provider.respond_with(None)
    reply = letta.agents.messages.create(agent.id, input="And now?")
    assert reply.stop_reason.stop_reason == "end_turn"
