"""A server with all telemetry enabled, used by the official client (wire-v1 §2.9, §3.6)."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import APIStatusError, Letta
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.support.server_process import ServerProcess
from tests.support.wire_server import connect, connect_plainly, provider_variables

from holdfast.testing import Answer, HttpError, ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

PASSWORD = "pass-word-of-this-server"


class Collector(ThreadingHTTPServer):
    """Collects what OpenTelemetry sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _CollectorHandler)
        self.received: list[tuple[str, bytes]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[Any]:
        return [
            span
            for path, body in self.received
            if path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _CollectorHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def server(
    running_provider: ScriptedProvider,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerProcess]:
    variables = provider_variables(running_provider) | {
        "HOLDFAST_PROVIDER_TRACES": "true",
        "HOLDFAST_METRICS": "open",
        "HOLDFAST_LOG_FORMAT": "json",
        "HOLDFAST_LOG_LEVEL": "debug",
        "HOLDFAST_PASSWORD": PASSWORD,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address,
        # FastAPI's own instrumentation would add more spans.
        "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
        # Uncompressed, so that the test can read it.
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    started = ServerProcess.start(tmp_path_factory.mktemp("watched"), **variables)
    yield started
    started.stop()


@pytest.fixture
def client(server: ServerProcess, provider: ScriptedProvider) -> Iterator[Letta]:
    with connect(server.address, api_key=PASSWORD) as letta:
        yield letta


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {PASSWORD}"}
    with connect_plainly(server.address, headers=headers) as plain:
        yield plain


@pytest.mark.wire(152)
def test_a_step_shows_what_its_provider_was_sent_and_answered(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
) -> None:
    agent = make_agent(secrets={"TOKEN": "s3cret-token"}, tags=["blue"])
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
    assert (trace.call_type, trace.agent_tags) == ("agent_step", ["blue"])
    assert trace.llm_config is not None
    assert trace.llm_config["handle"] == model
    assert trace.latency_ms is not None
    shown = http.get(f"/v1/steps/{step.id}/trace").json()
    assert http.get(f"/v1/telemetry/{step.id}").json() == shown


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


def test_a_turn_is_seen_in_the_log_the_figures_and_the_trace(
    client: Letta, server: ServerProcess, collector: Collector
) -> None:
    """The last test of the module, because it stops the server: pending telemetry is sent before it ends."""
    agent = client.agents.create(model="openai/gpt-4o-mini", include_base_tools=False)
    answer = client.agents.messages.create(agent.id, input="My own words.")
    client.agents.list(query_text="words-that-I-look-for")
    (run,) = client.runs.list(agent_id=agent.id).items
    (step,) = client.steps.list(agent_id=agent.id).items
    spans = client.runs.trace.retrieve(run.id)
    # Prometheus needs no password here; all other paths do.
    figures = httpx.get(f"{server.address}/metrics").text
    assert httpx.get(f"{server.address}/v1/agents/").status_code == 401
    assert server.stop() == 0
    assert 'holdfast_runs_total{status="completed",stop_reason="end_turn"}' in figures
    assert "holdfast_runs_live 0.0" in figures
    assert answer.messages
    lines = [json.loads(line) for line in server.log.splitlines()]
    told = [line for line in lines if line.get("run_id") == run.id]
    assert [line["event"] for line in told] == [
        "run.queued",
        "run.started",
        "step.started",
        "model.answered",
        "run.ended",
    ]
    assert {line["trace_id"] for line in told[1:]} == {step.trace_id}
    sent = {span.name: span for span in collector.spans()}
    assert sent["invoke_agent " + agent.name].trace_id.hex() == step.trace_id
    assert sent["chat gpt-4o-mini"].trace_id.hex() == step.trace_id
    assert [span["name"] for span in spans] == ["invoke_agent", "step", "chat gpt-4o-mini"]
    everything = server.log.encode() + b"".join(body for _, body in collector.received)
    assert b"My own words" not in everything
    assert b"words-that-I-look-for" not in everything
    assert PASSWORD.encode() not in everything
