"""A server that is killed, paused or stopped in the middle of its runs: they go on at another one."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.client_objects import as_dicts, eventually
from tests.support.cluster import Cluster
from tests.support.stream_items import assert_ended, text_of
from tests.support.weather_scenes import (
    LEAVE_LINE,
    begin_answer,
    begin_tools,
    create_agent,
    send_patiently,
)

from holdfast.testing import Answer, ToolCall

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
# Longer than any test: nobody gets a run because this lease has expired.
LONG_LEASE = "600"


def results_of(cluster: Cluster, agent_id: str) -> list[str]:
    """What the model is told of each call."""
    rows = [row for row in cluster.read_history(agent_id) if row.get("tool_returns")]
    return [result["tool_return"] for row in rows for result in row["tool_returns"]]


def test_the_runs_of_a_killed_server_go_on_at_another_and_no_tool_runs_twice(
    cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    victim, other = cluster.need(2)
    answering = begin_answer(cluster, victim)
    tools = begin_tools(cluster, victim)
    reader = pool.submit(other.stream, answering.run_id)
    assert cluster.find_owner(answering.run_id) is victim

    with tools.door.wait_for_tool():
        victim.kill()
    answering.gate.release()
    tools.door.close()

    told = reader.result(WAIT_SECONDS)
    assert text_of(told).endswith("Second try.")
    assert_ended(told, "end_turn")
    assert cluster.wait_for_end(tools.run_id) == "completed"
    assert tools.log.read_text(encoding="utf-8") == "entered\n"
    unknown, not_started = results_of(cluster, tools.agent_id)
    assert "its outcome is unknown" in unknown
    assert "unknown" not in not_started


def test_a_question_for_a_person_outlives_its_server_and_is_answered_at_another(
    cluster: Cluster,
) -> None:
    victim, other = cluster.need(2)
    log = cluster.tool_files / "approved"
    agent_id = create_agent(victim, LEAVE_LINE)
    victim.client.agents.tools.update_approval(
        "leave_line", agent_id=agent_id, body_requires_approval=True
    )
    call = ToolCall("leave_line", {"log": str(log), "line": "allowed"}, id="call_held")
    cluster.provider.script(Answer(call), "Done.")
    victim.client.agents.messages.create(agent_id, input="Leave a line")
    victim.kill()
    decision: Any = {"type": "approval", "approve": True, "tool_call_id": "call_held"}

    reply = other.client.agents.messages.create(
        agent_id, messages=[{"type": "approval", "approvals": [decision]}]
    )

    assert as_dicts(reply.messages)[-1]["content"] == "Done."
    assert log.read_text(encoding="utf-8") == "allowed\n"


def test_a_server_that_slept_longer_than_its_lease_writes_nothing_and_starts_no_tool(
    cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    victim, other = cluster.need(2)
    answering = begin_answer(cluster, victim)
    tools = begin_tools(cluster, victim)
    connected = pool.submit(victim.stream, answering.run_id)
    with tools.door.wait_for_tool():
        victim.pause()
        # The tool returns while its server sleeps; the answer goes on, too.
    answering.gate.release()

    assert cluster.wait_for_end(tools.run_id) == "completed"
    assert cluster.wait_for_end(answering.run_id) == "completed"
    before = [cluster.read_history(one.agent_id) for one in (answering, tools)]
    streams = [other.stream(one.run_id) for one in (answering, tools)]
    victim.resume()
    eventually(lambda: victim.process.log, lambda log: "lease.renewed" in log)

    assert [cluster.read_history(one.agent_id) for one in (answering, tools)] == before
    assert [other.stream(one.run_id) for one in (answering, tools)] == streams
    assert tools.log.read_text(encoding="utf-8") == "entered\n"
    # Whoever was connected to the sleeper reads the rest there, which another server has written.
    told = connected.result(WAIT_SECONDS)
    assert text_of(told).endswith("Second try.")
    assert_ended(told, "end_turn")
    assert send_patiently([victim.address], answering.agent_id, "Awake?")


def test_a_server_that_is_told_to_stop_hands_its_runs_over_without_waiting_for_its_lease(
    cluster: Cluster,
) -> None:
    cluster.need(1)
    victim = cluster.start(HOLDFAST_LEASE_SECONDS=LONG_LEASE)
    answering = begin_answer(cluster, victim)
    assert cluster.find_owner(answering.run_id) is victim

    assert victim.stop() == 0
    answering.gate.release()

    assert cluster.wait_for_end(answering.run_id) == "completed"
    assert cluster.find_owner(answering.run_id) in cluster.alive
    assert cluster.read_history(answering.agent_id)[-1]["content"] == "Second try."


def test_a_server_that_comes_back_releases_the_runs_of_a_killed_process_at_once(
    cluster: Cluster,
) -> None:
    cluster.need(1)
    victim = cluster.start(HOLDFAST_LEASE_SECONDS=LONG_LEASE)
    answering = begin_answer(cluster, victim)

    victim.kill()
    cluster.restart(victim)
    answering.gate.release()

    assert cluster.wait_for_end(answering.run_id) == "completed"
