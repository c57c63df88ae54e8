"""Runs through the MCP server: those that take long, and those whose client is gone."""

import asyncio
from collections.abc import Iterator

import pytest
from letta_client import Letta
from tests.support.mcp_client import (
    call,
    call_for_value,
    connect_mcp,
    fail,
    read,
    run_id_of,
    text_of,
)
from tests.support.server_process import ServerProcess
from tests.support.wire_server import MakeAgent, variables

from holdfast.testing import Answer, Gate, ScriptedProvider

pytestmark = pytest.mark.slow

# Longer than a run without a gate takes.
LONG = 60
# How long other APIs let a message wait for its turn, and longer than that.
BUSY_WAIT = 0.5
OUTLASTING = 3 * BUSY_WAIT


@pytest.fixture(scope="module")
def server(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Like the usual one, but a message does not wait long for its turn."""
    shared = variables(running_provider) | {"HOLDFAST_BUSY_WAIT_SECONDS": str(BUSY_WAIT)}
    started = ServerProcess.start(tmp_path_factory.mktemp("home"), **shared)
    yield started
    started.stop()


@pytest.fixture
def gate(provider: ScriptedProvider) -> Iterator[Gate]:
    """Where the first answer of the model waits."""
    made = Gate()
    provider.script(Answer("It took ", made, "long."))
    yield made
    made.release()


async def test_a_run_that_outlasts_the_wait_is_named_and_found_again(
    server: ServerProcess, generation: str, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Take your time", "wait_seconds": 0.1}
        result = await client.call_tool("send_message", sent)
        run_id = run_id_of(result)
        assert not result.is_error
        assert text_of(result).startswith(f"The run {run_id} has not ended yet.")
        assert "get_run" in text_of(result)
        await gate.reached.wait()
        again = await call(client, "get_run", run_id=run_id)
        assert "has been asking openai/gpt-4o-mini" in again
        assert (await read(client, f"holdfast://runs/{run_id}"))["status"] == "running"

        gate.release()

        assert await call(client, "get_run", run_id=run_id, wait_seconds=LONG) == "It took long."


async def test_a_message_may_be_sent_without_waiting_at_all(
    server: ServerProcess, generation: str, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Later is fine", "wait_seconds": 0}
        result = await client.call_tool("send_message", sent)
        assert "has not ended yet" in text_of(result)
        gate.release()
        listed = await call_for_value(client, "list_runs", agent=agent.id)

    assert [run["id"] for run in listed["runs"]] == [run_id_of(result)]


async def test_a_call_that_its_client_cancels_leaves_the_run_alone(
    server: ServerProcess, generation: str, make_agent: MakeAgent, gate: Gate
) -> None:
    """With a notification or by closing the stream: in both generations the run goes on."""
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        calling = asyncio.create_task(
            client.call_tool("send_message", {"agent": agent.id, "message": "Hello"})
        )
        await gate.reached.wait()
        calling.cancel()
        await asyncio.wait([calling])
        listed = await call_for_value(client, "list_runs", agent=agent.id)
        (run,) = listed["runs"]
        assert run["status"] == "running"
    # Another client: the SDK's fails if the answer to a call that it has cancelled arrives while it closes.
    gate.release()
    async with connect_mcp(server.address, generation) as client:
        answer = await call(client, "get_run", run_id=run["id"], wait_seconds=LONG)
    assert answer == "It took long."


async def test_a_client_that_leaves_leaves_the_run_alone(
    server: ServerProcess, generation: str, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()

    async def send() -> None:
        async with connect_mcp(server.address, generation) as client:
            await client.call_tool("send_message", {"agent": agent.id, "message": "Hello"})

    sending = asyncio.create_task(send())
    await gate.reached.wait()
    sending.cancel()
    await asyncio.wait([sending])
    gate.release()
    async with connect_mcp(server.address, generation) as client:
        (run,) = (await call_for_value(client, "list_runs", agent=agent.id))["runs"]
        answer = await call(client, "get_run", run_id=run["id"], wait_seconds=LONG)

    assert answer == "It took long."


async def test_a_run_is_cancelled_by_its_tool_and_whoever_waits_for_it_is_told(
    server: ServerProcess, generation: str, letta: Letta, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        sending = asyncio.create_task(fail(client, "send_message", agent=agent.id, message="Hello"))
        await gate.reached.wait()
        (run,) = (await call_for_value(client, "list_runs", agent=agent.id))["runs"]
        cancelled = await call(client, "cancel_run", run_id=run["id"], reason="Too slow")
        told = await sending
        again = await call(client, "cancel_run", run_id=run["id"])

    assert cancelled.startswith(f"The run {run['id']}: The run was cancelled")
    assert "Too slow" in cancelled
    assert "The run was cancelled" in told
    assert again == cancelled
    assert letta.runs.retrieve(run["id"]).status == "cancelled"


async def test_an_agent_may_cancel_a_run_that_works(
    server: ServerProcess, generation: str, letta: Letta, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()
    run = letta.agents.messages.create_async(agent.id, input="Hello")
    await gate.reached.wait()
    async with connect_mcp(server.address, generation, {"X-Agent-Id": agent.id}) as client:
        assert "The run was cancelled" in await call(client, "cancel_run", run_id=run.id)


async def test_a_message_to_a_busy_agent_waits_for_its_turn_and_says_behind_which_run(
    server: ServerProcess, generation: str, letta: Letta, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        first = await client.call_tool(
            "send_message", {"agent": agent.id, "message": "First", "wait_seconds": 0}
        )
        await gate.reached.wait()
        second = await client.call_tool(
            "send_message", {"agent": agent.id, "message": "Second", "wait_seconds": OUTLASTING}
        )
        # Marked as reading only: it does not even touch a message that waits.
        again = await client.call_tool(
            "get_run", {"run_id": run_id_of(second), "wait_seconds": OUTLASTING}
        )
        waiting = letta.runs.retrieve(run_id_of(second)).status
        gate.release()
        answer = await call(client, "get_run", run_id=run_id_of(second), wait_seconds=LONG)

    for told in (second, again):
        assert not told.is_error
        assert f"The run {run_id_of(second)} has not ended yet." in text_of(told)
        assert f"behind {run_id_of(first)}" in text_of(told)
        assert "do not send the message again" in text_of(told)
    assert waiting == "created"
    assert answer == "Hello."


async def test_waiting_for_a_run_that_another_client_has_queued_leaves_it_queued(
    server: ServerProcess, generation: str, letta: Letta, make_agent: MakeAgent, gate: Gate
) -> None:
    agent = make_agent()
    letta.agents.messages.create_async(agent.id, input="One")
    await gate.reached.wait()
    queued = letta.agents.messages.create_async(agent.id, input="Two")
    async with connect_mcp(server.address, generation) as client:
        await call(client, "get_run", run_id=queued.id, wait_seconds=OUTLASTING)

        assert letta.runs.retrieve(queued.id).status == "created"

        gate.release()
        assert await call(client, "get_run", run_id=queued.id, wait_seconds=LONG) == "Hello."


async def test_runs_are_listed_page_by_page(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        sent = []
        for number in range(3):
            text = {"agent": agent.id, "message": f"Hello {number}"}
            sent.append(run_id_of(await client.call_tool("send_message", text)))
        first = await call_for_value(client, "list_runs", agent=agent.id, limit=2)
        second = await call_for_value(
            client, "list_runs", agent=agent.id, limit=2, after=first["next"]
        )

    assert [run["id"] for run in first["runs"] + second["runs"]] == sent[::-1]
    assert "next" not in second


@pytest.mark.parametrize("tool", ["get_run", "cancel_run"])
async def test_an_unknown_run_is_an_error(
    server: ServerProcess, generation: str, tool: str
) -> None:
    missing = "run-00000000-0000-4000-8000-000000000000"
    async with connect_mcp(server.address, generation) as client:
        assert missing in await fail(client, tool, run_id=missing)
        assert "agent-1" in await fail(client, tool, run_id="agent-1")
