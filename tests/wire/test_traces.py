"""A server that keeps what its providers were sent, asked by the official client (wire-v1 §2.9, §3.6)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import APIStatusError, Letta
from tests.server_process import ServerProcess
from tests.wire.conftest import provider_variables

from holdfast.testing import Answer, HttpError, ScriptedProvider

if TYPE_CHECKING:
    from tests.wire.conftest import MakeAgent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    variables = provider_variables(running_provider) | {"HOLDFAST_PROVIDER_TRACES": "true"}
    started = ServerProcess.start(tmp_path_factory.mktemp("traced"), **variables)
    yield started
    started.stop()


@pytest.mark.wire(152)
def test_a_step_shows_what_its_provider_was_sent_and_answered(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
) -> None:
    agent = make_agent(secrets={"TOKEN": "s3cret-token"})
    provider.script(Answer("Your token is s3cret-token."))
    client.agents.messages.create(agent.id, input="What is s3cret-token?")
    (step,) = client.steps.list(agent_id=agent.id).items
    trace = client.steps.trace.retrieve(step.id)
    assert trace is not None
    assert trace.request_json["model"] == model.partition("/")[2]
    assert "What is [secret hidden]?" in str(trace.request_json)
    assert "Your token is [secret hidden]." in str(trace.response_json)
    assert "s3cret" not in trace.model_dump_json()
    assert (trace.step_id, trace.run_id, trace.agent_id) == (step.id, step.run_id, agent.id)
    assert (trace.call_type, trace.llm_config and trace.llm_config["handle"]) == (
        "agent_step",
        model,
    )
    assert trace.latency_ms is not None
    assert (
        http.get(f"/v1/telemetry/{step.id}").json() == http.get(f"/v1/steps/{step.id}/trace").json()
    )


@pytest.mark.wire(152)
def test_a_failed_step_shows_what_its_provider_said(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    provider.script(HttpError(400, "TEST: no such thing"))
    with pytest.raises(APIStatusError):
        client.agents.messages.create(agent.id, input="Hi")
    (step,) = client.steps.list(agent_id=agent.id).items
    trace = http.get(f"/v1/steps/{step.id}/trace").json()
    assert trace["status_code"] == 400
    assert "TEST: no such thing" in trace["error"]
    assert trace["response_json"]["error"]["message"] == "TEST: no such thing"
