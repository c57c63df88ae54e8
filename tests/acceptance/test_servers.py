"""Two servers on one PostgreSQL, as an operator sees them: the list, explanations from the other one, and a death."""

import json
import re
from typing import Any

import httpx
import pytest
from tests.support.client_objects import eventually
from tests.support.server_process import Command, ServerProcess, StartServer
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import WAIT_AT_GATE
from tests.support.wire_server import connect

pytestmark = pytest.mark.slow

LEASE_SECONDS = "2"


@pytest.fixture
def variables(postgres_url: str) -> dict[str, str]:
    return {
        "HOLDFAST_DATABASE_URL": postgres_url,
        "HOLDFAST_SECRET_KEY": "the same on each server",
        "HOLDFAST_LEASE_SECONDS": LEASE_SECONDS,
        "HOLDFAST_DRAIN_SECONDS": "0",
    }


@pytest.fixture
def pair(
    start_server: StartServer, variables: dict[str, str]
) -> tuple[ServerProcess, ServerProcess]:
    first = start_server(**variables)
    eventually(lambda: list_servers(first), lambda found: len(found) == 1)
    second = start_server(**variables)
    eventually(lambda: list_servers(second), lambda found: len(found) == 2)
    return first, second


def list_servers(server: ServerProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{server.address}/v1/servers/").json()["servers"]
    return found


def wait_for_notifications(server: ServerProcess) -> list[dict[str, Any]]:
    """The list once no server in it polls."""
    return eventually(
        lambda: list_servers(server), lambda found: all(item["is_notified"] for item in found)
    )


def explain(server: ServerProcess, run_id: str) -> dict[str, Any]:
    explained: dict[str, Any] = httpx.get(f"{server.address}/v1/runs/{run_id}/explain").json()
    return explained


def start_run(server: ServerProcess, gate: ToolGate) -> str:
    """A run whose tool waits at the gate. The server that accepts it executes it."""
    client = connect(server.address)
    tool = client.tools.upsert(source_code=WAIT_AT_GATE)
    agent = client.agents.create(
        model="holdfast/guide", include_base_tools=False, tool_ids=[tool.id]
    )
    text = f"call wait_at_gate with port {gate.port} and log entries"
    return client.agents.messages.create_async(agent.id, input=text).id


def test_both_servers_are_listed_by_each(pair: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = pair
    by_first, by_second = map(wait_for_notifications, pair)

    assert [item["pid"] for item in by_first] == [first.pid, second.pid]
    assert [item["is_leader"] for item in by_first] == [True, False]
    assert [item["is_this"] for item in by_first] == [True, False]
    assert [item["is_this"] for item in by_second] == [False, True]
    assert all(item["is_alive"] and item["lease_ends_at"] for item in by_second)


def test_a_run_is_explained_by_the_server_that_does_not_execute_it(
    pair: tuple[ServerProcess, ServerProcess], holdfast: Command
) -> None:
    first, second = pair
    with ToolGate() as gate:
        run_id = start_run(first, gate)
        with gate.wait_for_tool():
            agent_id = explain(first, run_id)["agent_id"]
            connect(second.address).agents.messages.create_async(agent_id, input="Hello")
            queue = httpx.get(f"{second.address}/v1/servers/").json()["queue"]
            here, there = explain(first, run_id), explain(second, run_id)
            shown = holdfast("runs", "explain", run_id, "--url", second.address)

    assert queue["waiting_runs"] == 1
    assert queue["oldest_seconds"] >= 0
    owner = list_servers(first)[0]
    assert (here["lease"]["held_here"], there["lease"]["held_here"]) == (True, False)
    for explained in (here, there):
        lease = explained["lease"]
        assert (lease["server_id"], lease["host"]) == (owner["id"], owner["host"])
        assert (lease["is_valid"], lease["fence"]) == (True, 1)
        assert lease["expires_at"]
    assert here["summary"].endswith("This server executes it.")
    sentence = f"The server {owner['id']} on {owner['host']} executes it."
    assert there["summary"].endswith(sentence)
    assert re.search(r"another one takes the run over within \d seconds\.$", there["by_itself"])
    assert shown.stdout.splitlines()[0].endswith(sentence)
    assert re.search(
        rf"^server +{owner['id']} on .*, lease until .* \(fence 1\)$", shown.stdout, re.MULTILINE
    )


def test_a_server_that_was_killed_is_shown_as_dead_and_its_run_goes_on_elsewhere(
    pair: tuple[ServerProcess, ServerProcess], holdfast: Command, variables: dict[str, str]
) -> None:
    first, second = pair
    with ToolGate() as gate:
        run_id = start_run(first, gate)
        with gate.wait_for_tool():
            first.kill()

    dead, alive = eventually(lambda: list_servers(second), lambda found: not found[0]["is_alive"])
    assert (dead["is_leader"], alive["is_leader"]) == (False, True)
    eventually(lambda: explain(second, run_id), lambda told: told["phase"] == "ended")

    listed = holdfast("servers", "list", "--url", second.address).stdout
    heading, first_row, second_row, _, queue = listed.splitlines()
    assert heading.split()[:3] == ["SERVER", "HOST", "PID"]
    assert re.fullmatch(rf"{dead['id']} .* \d+/1000 .* DEAD, lease ended .* ago", first_row)
    assert re.fullmatch(rf"{alive['id']} .* 0/1000 .* alive, leader, answers", second_row)
    assert queue == "No run waits in the queue."
    printed = json.loads(holdfast("servers", "list", "--json", "--url", second.address).stdout)
    assert [item["id"] for item in printed["servers"]] == [dead["id"], alive["id"]]
    checked = " ".join(holdfast("doctor", **variables).stdout.split())
    assert "ok notifications They arrive." in checked
    assert f"ok servers 1 alive: {alive['id']} on {alive['host']} (process {second.pid}," in checked


def test_without_notifications_a_server_says_that_it_polls(
    start_server: StartServer, variables: dict[str, str], holdfast: Command
) -> None:
    server = start_server(**variables, HOLDFAST_LISTEN_URL="postgresql://nobody@127.0.0.1:1/none")
    eventually(lambda: list_servers(server), lambda found: len(found) == 1)

    health = httpx.get(f"{server.address}/v1/health/")

    assert (health.status_code, health.json()["status"]) == (200, "ok")
    assert health.json()["notifications"] == "polling"
    assert list_servers(server)[0]["is_notified"] is False
    listed = holdfast("servers", "list", "--url", server.address).stdout
    assert "alive, leader, polling, answers" in listed


def test_each_server_measures_the_queue_of_all(
    start_server: StartServer, variables: dict[str, str]
) -> None:
    """The runs wait because no server executes any."""
    servers = [start_server("--role", "api", HOLDFAST_METRICS="on", **variables) for _ in range(2)]
    client = connect(servers[0].address)
    agent = client.agents.create(model="holdfast/guide", include_base_tools=False)
    run_id = client.agents.messages.create_async(agent.id, input="Hello").id

    told = explain(servers[1], run_id)["by_itself"]

    assert told.startswith("No server that executes runs is alive.")
    for server in servers:
        metrics = wait_for_metric(server, "\nholdfast_runs_waiting 1.0\n")
        (oldest,) = re.findall(r"^holdfast_runs_oldest_wait_seconds (.*)$", metrics, re.MULTILINE)
        assert float(oldest) > 0


def wait_for_metric(server: ServerProcess, line: str) -> str:
    return eventually(
        lambda: httpx.get(f"{server.address}/metrics").text, lambda text: line in text
    )
