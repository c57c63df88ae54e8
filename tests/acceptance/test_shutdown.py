"""A server that is told to stop: it takes nothing new, finishes what it can, and the next one goes on with the rest."""

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.client_objects import eventually, message_texts
from tests.support.server_process import ServerProcess, StartServer
from tests.support.wire_server import MODELS, connect, connect_plainly, provider_variables

from holdfast.testing import Answer, Gate, ScriptedProvider

pytestmark = pytest.mark.slow

FOR_EVER = "3600"
WAIT_SECONDS = 60


class ServerHome:
    """A home in which one server follows the other."""

    def __init__(self, start: StartServer, provider: ScriptedProvider) -> None:
        self._start = start
        self._provider = provider
        self.server: ServerProcess

    def open(self, drain_seconds: str = FOR_EVER, **variables: str) -> None:
        given = provider_variables(self._provider) | variables
        self.server = self._start(HOLDFAST_DRAIN_SECONDS=drain_seconds, **given)
        self.client = connect(self.server.address)
        self.http = connect_plainly(self.server.address)

    def agent(self) -> str:
        return self.client.agents.create(model=MODELS["openai"], include_base_tools=False).id

    def send_async(self, agent_id: str, text: str) -> str:
        """Send and go: no client waits for the run."""
        sent = self.http.post(f"/v1/agents/{agent_id}/messages/async", json={"input": text})
        run_id: str = sent.json()["id"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.http.get(f"/v1/runs/{run_id}").json()
        return shown

    def wait_for_end(self, run_id: str) -> dict[str, Any]:
        return eventually(lambda: self.run(run_id), lambda run: run["completed_at"] is not None)

    def send_signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.server.pid, number)

    def begin_to_stop(self, number: int = signal.SIGTERM) -> None:
        """A signal; from here on the server is draining."""
        self.send_signal(number)
        eventually(lambda: self.http.get("/v1/ready/"), lambda ready: ready.status_code == 503)

    def exit_code(self) -> int:
        """Wait for the end that was asked for already."""
        return self.server.wait_for_exit()


@pytest.fixture
def server_home(start_server: StartServer, provider: ScriptedProvider) -> ServerHome:
    return ServerHome(start_server, provider)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """In the middle of an answer; open at the end of the test, whatever became of it."""
    made = Gate("the middle of an answer")
    yield made
    made.release()


def test_a_run_without_a_client_is_finished_before_the_server_ends(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate
) -> None:
    server_home.open()
    agent_id = server_home.agent()
    provider.script(Answer("First", gate, " try."))
    run_id = server_home.send_async(agent_id, "Hello?")
    gate.reached.block()

    server_home.begin_to_stop()
    gate.release()

    assert server_home.exit_code() == 0
    server_home.open()
    assert server_home.run(run_id)["status"] == "completed"
    assert message_texts(server_home.client, agent_id) == ["Hello?", "First try."]
    assert len(provider.requests) == 1


def test_what_is_not_finished_in_time_and_what_waits_is_done_by_the_next_server(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate
) -> None:
    server_home.open(drain_seconds="0")
    agent_id = server_home.agent()
    provider.script(Answer("First", gate), "Second try.", "To two.")
    live = server_home.send_async(agent_id, "One")
    gate.reached.block()
    queued = server_home.send_async(agent_id, "Two")

    assert server_home.server.stop() == 0
    server_home.open()

    assert [server_home.wait_for_end(run)["status"] for run in (live, queued)] == [
        "completed",
        "completed",
    ]
    assert message_texts(server_home.client, agent_id) == ["One", "Second try.", "Two", "To two."]


def test_a_stream_ends_in_order_and_goes_on_with_the_next_server(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate
) -> None:
    server_home.open(drain_seconds="0")
    agent_id = server_home.agent()
    provider.script(Answer("I was about", gate), "Second try.")
    wish = {"input": "Hello?", "streaming": True, "stream_tokens": True, "background": True}

    # A connection that is cut in the middle of an answer is an error to httpx.
    with server_home.http.stream("POST", f"/v1/agents/{agent_id}/messages", json=wish) as answer:
        lines = answer.iter_lines()
        begun = next(line for line in lines if "I was about" in line)
        server_home.send_signal()
        rest = [line for line in lines if line]
    assert server_home.exit_code() == 0
    assert not any("[DONE]" in line or "error" in line for line in rest)
    last = json.loads((rest or [begun])[-1].removeprefix("data: "))
    server_home.open()
    resumed = server_home.http.post(
        f"/v1/runs/{last['run_id']}/stream", json={"starting_after": last["seq_id"]}
    )

    assert resumed.text.endswith("data: [DONE]\n\n")
    frames = resumed.text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    items = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    said = [item["content"] for item in items if item["message_type"] == "assistant_message"]
    assert "".join(said) == "Second try."
    assert min(item["seq_id"] for item in items if "seq_id" in item) > last["seq_id"]


def test_a_caller_who_waits_is_told_that_the_run_is_kept_and_the_log_has_no_error(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    server_home.open(drain_seconds="0")
    path = f"/v1/agents/{server_home.agent()}/messages"
    provider.script(Answer("First", gate))
    caller = pool.submit(server_home.http.post, path, json={"input": "Hello?"})
    gate.reached.block()

    assert server_home.server.stop() == 0

    answer = caller.result(WAIT_SECONDS)
    assert answer.status_code == 503
    assert answer.headers["x-should-retry"] == "false"
    assert "is kept and goes on when the server is back" in answer.json()["detail"]
    log = server_home.server.log
    (line,) = [line for line in log.splitlines() if " request." in line]
    assert " INFO request.interrupted " in line
    assert f"path={path}" in line
    assert "run_id=run-" in line
    assert " ERROR " not in log
    assert "Traceback" not in log


def test_while_it_stops_the_server_takes_no_message_and_says_so(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate
) -> None:
    server_home.open()
    agent_id = server_home.agent()
    provider.script(Answer("First", gate, " try."))
    run_id = server_home.send_async(agent_id, "Hello?")
    gate.reached.block()

    server_home.begin_to_stop()

    senders = paths_of_messages(server_home.http.get("/openapi.json").json())
    assert len(senders) >= 4
    for path in senders:
        given = re.sub(r"\{\w+\}", agent_id, path)
        refused = server_home.http.post(given, json={"input": "Me too", "agent_id": agent_id})
        assert refused.status_code == 503, path
        assert "was not stored: send it again" in refused.json()["detail"]
        # Nothing was stored, so the SDK may well try again, once this server is gone.
        assert "x-should-retry" not in refused.headers
        assert 0 < int(refused.headers["retry-after"]) <= int(FOR_EVER)
    assert server_home.http.get("/v1/health/").status_code == 200
    assert server_home.run(run_id)["status"] == "running"
    gate.release()
    assert server_home.exit_code() == 0
    server_home.open()
    assert message_texts(server_home.client, agent_id) == ["Hello?", "First try."]


def paths_of_messages(openapi: dict[str, Any]) -> list[str]:
    """Every path to which a message can be sent."""
    bodies = ("/SendBody", "/ConversationSend")
    return [
        path
        for path, methods in openapi["paths"].items()
        if "post" in methods
        for content in methods["post"].get("requestBody", {}).get("content", {}).values()
        if str(content["schema"].get("$ref")).endswith(bodies)
    ]


def test_a_message_that_was_turned_away_is_answered_by_the_next_server(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    server_home.open()
    agent_id, other = server_home.agent(), server_home.agent()
    provider.script(Answer("First", gate, " try."), "To you too.")
    server_home.send_async(agent_id, "Hello?")
    gate.reached.block()
    server_home.begin_to_stop()

    patient = server_home.client.with_options(max_retries=20)
    caller = pool.submit(patient.agents.messages.create, other, input="And me?")
    gate.release()
    assert server_home.exit_code() == 0
    server_home.open(HOLDFAST_PORT=server_home.server.address.rsplit(":", 1)[1])

    caller.result(WAIT_SECONDS)
    assert message_texts(server_home.client, other) == ["And me?", "To you too."]


def test_while_it_stops_a_run_can_be_cancelled_and_then_nothing_holds_the_server(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate
) -> None:
    server_home.open()
    provider.script(Answer("First", gate))
    run_id = server_home.send_async(server_home.agent(), "Hello?")
    gate.reached.block()
    server_home.begin_to_stop()

    cancelled = server_home.http.post(f"/v1/runs/{run_id}/cancel")

    assert cancelled.json()["status"] == "cancelled"
    assert server_home.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_at_a_second_signal_the_server_waits_no_longer(
    server_home: ServerHome, provider: ScriptedProvider, gate: Gate, number: int
) -> None:
    server_home.open()
    agent_id = server_home.agent()
    provider.script(Answer("First", gate), "Second try.")
    run_id = server_home.send_async(agent_id, "Hello?")
    gate.reached.block()
    server_home.begin_to_stop(number)

    server_home.send_signal(number)

    assert server_home.exit_code() == 0
    assert "Traceback" not in server_home.server.log
    server_home.open()
    assert server_home.wait_for_end(run_id)["status"] == "completed"
    assert message_texts(server_home.client, agent_id) == ["Hello?", "Second try."]
