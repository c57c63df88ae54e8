"""Cancelling a run whose tools are running (wire-v1 §4.10, §5.5)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dict, as_dicts, history, kinds
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import SHOUT
from tests.support.wire_checks import assert_answers, assert_cancelled

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

WAIT_SECONDS = 30

LINGER = '''
def linger(port: int) -> str:
    """Start a child, then wait with it at a door that nobody opens.

    Args:
        port: Where the door is.
    """
    import socket
    import subprocess
    import sys

    with socket.create_connection(("127.0.0.1", port)) as door:
        # The child holds the door too: it is free again when both are dead.
        wait = "import sys; sys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-c", wait], stdin=subprocess.PIPE, pass_fds=[door.fileno()]
        )
        door.sendall(b"here")
        child.wait()
    return "came in"
'''


@pytest.fixture
def tool_gate() -> Iterator[ToolGate]:
    with ToolGate() as opened:
        yield opened


def linger_call(tool_gate: ToolGate) -> ToolCall:
    return ToolCall("linger", {"port": tool_gate.port}, id="call_2")


@pytest.mark.wire(27, 28, 29)
def test_a_running_tool_is_killed_with_all_that_it_started_and_what_had_finished_is_kept(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    pool: ThreadPoolExecutor,
    tool_gate: ToolGate,
    model: str,
) -> None:
    tools = [make_tool(SHOUT).id, make_tool(LINGER).id]
    agent = make_agent(tool_ids=tools, parallel_tool_calls=True)
    shouts = [ToolCall("shout", {"text": text}, id=f"call_{text}") for text in "13"]
    provider.script(Answer("I begin.", shouts[0], linger_call(tool_gate), shouts[1]))
    sending = pool.submit(client.agents.messages.create, agent.id, input="Begin")

    with tool_gate.wait_for_tool() as visitor:
        assert visitor.recv(4) == b"here"
        (run,) = client.runs.list(agent_id=agent.id).items
        assert client.agents.messages.cancel(agent.id) == {run.id: "cancelled"}
        assert visitor.recv(1) == b""

    reply = sending.result(WAIT_SECONDS)
    assert as_dict(reply.stop_reason)["stop_reason"] == "cancelled"
    said, calls, results = as_dicts(reply.messages)
    assert said["content"] == "I begin."
    assert len(calls["tool_calls"]) == 3
    finished, killed, never_begun = results["tool_returns"]
    assert (finished["status"], finished["tool_return"]) == ("success", "1!")
    assert (killed["status"], never_begun["status"]) == ("error", "error")
    assert "cancelled while this tool was running" in killed["tool_return"]
    assert "cancelled before this tool was started" in never_begun["tool_return"]
    assert history(client, agent.id)[1:] == as_dicts(reply.messages)
    receipt = as_dict(client.runs.retrieve(run.id))["metadata"]["cancellation"]
    assert receipt["phase"] == "tools"
    assert receipt["calls"] == {"call_1": "finished", "call_2": "killed", "call_3": "not_started"}
    assert_cancelled(client, run.id)
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(48)
def test_a_cancel_in_the_last_step_wins_over_the_step_budget(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    tool_gate: ToolGate,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id, make_tool(LINGER).id])
    provider.script(Answer(ToolCall("shout", {"text": "hey"})), Answer(linger_call(tool_gate)))
    stream = client.agents.messages.stream(agent.id, input="Begin", max_steps=2)

    with tool_gate.wait_for_tool():
        client.agents.messages.cancel(agent.id)

    items = as_dicts(stream)
    assert_ended(items, "cancelled")
    assert items[-1]["step_count"] == 2
    assert_cancelled(client, items[0]["run_id"])
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(114, 115, 116, 137)
def test_a_cancel_while_an_allowed_call_is_carried_out(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    tool_gate: ToolGate,
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(LINGER, default_requires_approval=True).id])
    provider.script(Answer(linger_call(tool_gate)))
    client.agents.messages.create(agent.id, input="Begin")
    decision: Any = {"type": "approval", "approve": True, "tool_call_id": "call_2"}
    stream = client.agents.messages.stream(
        agent.id,
        messages=[{"type": "approval", "approvals": [decision]}],
        stream_tokens=True,
    )

    with tool_gate.wait_for_tool():
        client.agents.messages.cancel(agent.id)

    items = as_dicts(stream)
    assert items[0]["message_type"] == "tool_return_message"
    assert (items[0]["tool_call_id"], items[0]["status"]) == ("call_2", "error")
    assert_ended(items, "cancelled")
    newest, paused = client.runs.list(agent_ids=[agent.id]).items
    assert_cancelled(client, newest.id)
    assert (paused.status, paused.stop_reason) == ("completed", "requires_approval")
    assert kinds(client.agents.messages.list(agent.id).items)[-3:] == [
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
    ]
    assert_answers(client, provider, agent.id)
