"""Code that calls tools of MCP servers (wire-v1 §7.3, tools-v1 §1.8)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dict, as_dicts, eventually
from tests.support.mcp_server import McpTestServer
from tests.support.stream_items import IGNORE_DEPRECATION

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

NAME = "run_code_with_tools"
WAIT_SECONDS = 60


@pytest.fixture
def mcp() -> Iterator[McpTestServer]:
    with McpTestServer() as server:
        yield server


@pytest.fixture
def tools(client: Letta, mcp: McpTestServer) -> Iterator[dict[str, str]]:
    """The ids of the tools of the MCP server, by name."""
    config: Any = {"mcp_server_type": "streamable_http", "server_url": mcp.url}
    server_id = str(client.mcp_servers.create(server_name="code", config=config).id)
    yield {str(tool.name): tool.id for tool in client.mcp_servers.tools.list(server_id)}
    client.mcp_servers.delete(server_id)


def test_code_calls_tools_of_mcp_servers(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", tools: dict[str, str]
) -> None:
    agent = make_agent(tool_ids=[tools["echo"], tools["fail"]], tools=[NAME])
    code = (
        "try:\n    fail('no')\nexcept ToolFailed as error:\n    told = str(error)\n"
        "[echo('one'), echo(text='two'), told]"
    )
    provider.script(Answer(ToolCall(NAME, {"code": code})), "Done.")

    reply = client.agents.messages.create(agent.id, input="Go on")

    (row,) = [row for row in as_dicts(reply.messages) if "tool_return" in row]
    told = json.loads(row["tool_return"])
    assert told["func_return"][:2] == ["one", "two"]
    assert "no" in told["func_return"][2]
    assert told["tool_calls"] == {"fail": 1, "echo": 2}


def test_a_cancel_of_the_run_reaches_the_mcp_server_through_the_code(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    mcp: McpTestServer,
    tools: dict[str, str],
    pool: ThreadPoolExecutor,
) -> None:
    agent = make_agent(tool_ids=[tools["wait"]], tools=[NAME])
    provider.script(Answer(ToolCall(NAME, {"code": "wait('never')"})))
    sending = pool.submit(client.agents.messages.create, agent.id, input="Begin")
    (call,) = eventually(lambda: mcp.calls_of("wait"), bool)

    (run,) = client.runs.list(agent_id=agent.id).items
    assert client.agents.messages.cancel(agent.id) == {run.id: "cancelled"}

    reply = sending.result(WAIT_SECONDS)
    assert as_dict(reply.stop_reason)["stop_reason"] == "cancelled"
    eventually(lambda: call.state, lambda state: state == "cancelled")
