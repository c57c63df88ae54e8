"""Code that calls the agent's tools (wire-v1 §7.3), through the client."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta
from tests.support.client_objects import as_dict, as_dicts
from tests.support.stream_items import IGNORE_DEPRECATION
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import ADD, SECRET, WAIT_AT_GATE

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

NAME = "run_code_with_tools"
WAIT_SECONDS = 30


@pytest.fixture
def tool_gate() -> Iterator[ToolGate]:
    with ToolGate() as opened:
        yield opened


def run_code(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", code: str
) -> tuple[str, Any]:
    """The status of the call, and what it has returned."""
    provider.script(Answer(ToolCall(NAME, {"code": code})), "Done.")
    reply = client.agents.messages.create(agent.id, input="Go on")
    (row,) = [row for row in as_dicts(reply.messages) if "tool_return" in row]
    return row["status"], json.loads(row["tool_return"])


def tools_used(http: httpx.Client, run_id: str) -> list[str]:
    used: list[str] = http.get(f"/v1/runs/{run_id}/metrics").json()["tools_used"]
    return used


def test_code_calls_custom_and_built_in_tools(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(
        tool_ids=[make_tool(ADD).id, make_tool(SECRET).id],
        tools=[NAME, "memory_insert", "run_code"],
        memory_blocks=[{"label": "human", "value": "Likes tea."}],
        secrets={"MY_TOKEN": "t0ken"},
    )
    code = (
        "total = sum(add(n, b=n) for n in range(3))\n"
        "memory_insert(label='human', new_string=f'Total: {total}')\n"
        "print(reveal('MY_TOKEN'))\n"
        "{'total': total}"
    )

    status, told = run_code(client, provider, agent, code)

    assert status == "success"
    assert told == {
        "status": "success",
        "func_return": {"total": 6},
        "stdout": ["t0ken"],
        "stderr": [],
        "tool_calls": {"add": 3, "memory_insert": 1, "reveal": 1},
    }
    assert "Total: 6" in client.agents.blocks.retrieve("human", agent_id=agent.id).value


def test_the_run_shows_what_its_code_has_called(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
) -> None:
    add = make_tool(ADD)
    agent = make_agent(tool_ids=[add.id], tools=[NAME])
    (program,) = [tool for tool in agent.tools if tool.name == NAME]

    run_code(client, provider, agent, "add(1)")

    (run,) = http.get("/v1/runs/", params={"tools_used": add.id}).json()
    assert set(tools_used(http, run["id"])) == {add.id, program.id}


def test_a_tool_that_requires_approval_cannot_be_called_by_code(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(
        tool_ids=[make_tool(ADD).id],
        tools=[NAME],
        tool_rules=[{"type": "requires_approval", "tool_name": "add"}],
    )

    status, told = run_code(client, provider, agent, "add(1)")

    assert status == "error"
    assert told["status"] == "error"
    assert "requires approval" in told["func_return"]


@pytest.mark.parametrize("name", [NAME, "add", "archival_memory_insert"])
def test_what_is_not_attached_or_would_run_itself_is_no_function(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    name: str,
) -> None:
    make_tool(ADD)
    agent = make_agent(tools=[NAME])

    status, told = run_code(client, provider, agent, f"{name}(1)")

    assert (status, told["func_return"]) == ("error", f"NameError: name '{name}' is not defined")


def test_a_cancel_ends_the_code_and_the_tool_that_it_has_called(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    pool: ThreadPoolExecutor,
    tool_gate: ToolGate,
) -> None:
    agent = make_agent(tool_ids=[make_tool(WAIT_AT_GATE).id], tools=[NAME])
    code = f"wait_at_gate({tool_gate.port}, '/dev/null')"
    provider.script(Answer(ToolCall(NAME, {"code": code})))
    sending = pool.submit(client.agents.messages.create, agent.id, input="Begin")

    with tool_gate.wait_for_tool() as visitor:
        (run,) = client.runs.list(agent_id=agent.id).items
        assert client.agents.messages.cancel(agent.id) == {run.id: "cancelled"}
        assert visitor.recv(1) == b""

    reply = sending.result(WAIT_SECONDS)
    assert as_dict(reply.stop_reason)["stop_reason"] == "cancelled"
    assert set(tools_used(http, run.id)) == {tool.id for tool in agent.tools}


def test_a_tool_run_by_hand_may_be_such_code(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(tool_ids=[make_tool(ADD).id], tools=[NAME])

    returned = client.agents.tools.run(NAME, agent_id=agent.id, args={"code": "add(20, 22)"})

    told = json.loads(str(as_dict(returned)["func_return"]))
    assert (told["status"], told["func_return"]) == ("success", 42)
