"""What MCP clients can read."""

from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPError
from tests.support.mcp_client import connect_mcp, read, run_id_of
from tests.support.server_process import ServerProcess
from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

# As many as are listed of each kind.
MOST = 20


async def test_agents_and_runs_are_listed_and_read(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    agent = make_agent(name=f"ada-{uuid4()}", description="Knows the engine.")
    async with connect_mcp(server.address, generation) as client:
        run_id = run_id_of(
            await client.call_tool("send_message", {"agent": agent.id, "message": "Hello"})
        )
        listed = {item.uri for item in (await client.list_resources()).resources}
        run = await read(client, f"holdfast://runs/{run_id}")

        assert {
            "holdfast://approvals",
            f"holdfast://agents/{agent.id}",
            f"holdfast://runs/{run_id}",
        } <= listed
        assert await read(client, f"holdfast://agents/{agent.id}") == {
            "id": agent.id,
            "name": agent.name,
            "description": "Knows the engine.",
        }
    assert (run["id"], run["agent_id"], run["status"]) == (run_id, agent.id, "completed")
    assert run["answer"] == "Hello."
    assert "the model ended its turn" in run["summary"]


async def test_only_the_newest_are_listed(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    made = [make_agent().id for _ in range(MOST + 1)]
    async with connect_mcp(server.address, generation) as client:
        listed = [item.uri for item in (await client.list_resources()).resources]
        oldest = await read(client, f"holdfast://agents/{made[0]}")

    agents = [uri for uri in listed if uri.startswith("holdfast://agents/")]
    assert agents == [f"holdfast://agents/{agent_id}" for agent_id in made[:0:-1]]
    assert oldest["id"] == made[0]


async def test_there_is_a_template_for_each_kind(server: ServerProcess, generation: str) -> None:
    async with connect_mcp(server.address, generation) as client:
        templates = (await client.list_resource_templates()).resource_templates

    assert {template.uri_template for template in templates} == {
        "holdfast://agents/{agent_id}",
        "holdfast://runs/{run_id}",
        "holdfast://approvals/{approval_id}",
    }


@pytest.mark.parametrize(
    "uri",
    [
        "holdfast://runs/run-00000000-0000-4000-8000-000000000000",
        "holdfast://runs/",
        "holdfast://agents/ada",
        "holdfast://approvals/message-1",
        "holdfast://secrets",
        "file:///etc/passwd",
    ],
)
async def test_what_does_not_exist_is_an_error_with_a_sentence(
    server: ServerProcess, generation: str, uri: str
) -> None:
    async with connect_mcp(server.address, generation) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)

    assert refused.value.code == -32602
    assert "not found" in refused.value.message or "no resource" in refused.value.message
