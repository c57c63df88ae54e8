"""The rows of the operator's MCP servers, on both databases."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.doubles.mcp import ScriptedMcp
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.mcp_servers import McpSecrets, McpServer, RemoteTool, Transport
from holdfast.errors import McpUnavailable
from holdfast.ports.mcp import ConfiguredServer, McpOptions
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_configured, mcp_servers
from holdfast.usecases.mcp_forms import McpServerForm

PROGRAM = ConfiguredServer(name="files", command="run", env={"KEY": "swordfish"})
SITE = ConfiguredServer(name="site", url="http://127.0.0.1:1/mcp", headers={"Key": "swordfish"})


@pytest.fixture
def mcp() -> ScriptedMcp:
    return ScriptedMcp({"files": [RemoteTool(name="read")], "site": [RemoteTool(name="look")]})


@pytest.fixture
def services(any_store: SqlStore, mcp: ScriptedMcp) -> Services:
    return replace(Rig(any_store).services, mcp=mcp)


def configure(services: Services, *servers: ConfiguredServer) -> Services:
    options = McpOptions(configured={server.name: server for server in servers})
    return replace(services, mcp_options=options)


async def synchronise(services: Services, *servers: ConfiguredServer) -> Sequence[McpServer]:
    return await mcp_configured.synchronise(configure(services, *servers), ACTOR)


async def list_transports(services: Services) -> dict[str, Transport]:
    rows = await mcp_servers.list_all(services, ACTOR)
    assert all(row.is_configured for row in rows)
    return {row.name: row.transport for row in rows}


async def test_each_server_of_the_file_has_a_row_without_its_secrets(services: Services) -> None:
    old = ConfiguredServer(name="old", url="http://127.0.0.1:1/sse", is_sse=True)
    made = await synchronise(services, PROGRAM, SITE, old)
    assert await list_transports(services) == {
        "files": Transport.STDIO,
        "site": Transport.STREAMABLE_HTTP,
        "old": Transport.SSE,
    }
    assert {(row.secrets, row.command, row.server_url) for row in made} == {
        (McpSecrets(), None, None)
    }


async def test_a_start_keeps_the_ids_and_follows_the_transport(services: Services) -> None:
    before = {row.name: row.id for row in await synchronise(services, PROGRAM, SITE)}
    moved = ConfiguredServer(name="files", url="http://127.0.0.1:1/mcp")
    after = {row.name: row.id for row in await synchronise(services, moved, SITE)}
    assert after == before
    assert await list_transports(services) == {
        "files": Transport.STREAMABLE_HTTP,
        "site": Transport.STREAMABLE_HTTP,
    }


async def test_a_row_stays_when_its_server_leaves_the_file_and_can_be_deleted_then(
    services: Services,
) -> None:
    (row, _) = await synchronise(services, PROGRAM, SITE)
    later = configure(services, SITE)
    await mcp_configured.synchronise(later, ACTOR)
    assert (await list_transports(later)).keys() == {"files", "site"}
    await mcp_servers.delete(later, ACTOR, row.id)
    assert (await list_transports(later)).keys() == {"site"}


async def test_a_name_of_the_api_is_left_to_it(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    form = McpServerForm(name="site", server_url="https://example.com/mcp")
    created = await mcp_servers.create(services, ACTOR, form)
    mine = await mcp_servers.retrieve(services, ACTOR, created.id)
    assert [row.name for row in await synchronise(services, PROGRAM, SITE)] == ["files"]
    assert await mcp_servers.retrieve(services, ACTOR, mine.id) == mine
    warned = [record for record in caplog.records if record.msg == "mcp.configured_name_taken"]
    assert [record.__dict__["server"] for record in warned] == ["site"]


async def test_two_servers_that_start_at_once_make_the_rows_once(services: Services) -> None:
    first, second = await asyncio.gather(
        synchronise(services, PROGRAM, SITE), synchronise(services, PROGRAM, SITE)
    )
    assert [row.id for row in first] == [row.id for row in second]
    assert len(await mcp_servers.list_all(services, ACTOR)) == 2


async def test_the_tools_of_all_are_read_in_though_one_fails(
    services: Services, mcp: ScriptedMcp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    configured = configure(services, PROGRAM, SITE)
    rows = await mcp_configured.synchronise(configured, ACTOR)
    mcp.failures.append(McpUnavailable("files", "no such program"))
    await mcp_configured.read_tools(configured, ACTOR, rows)

    def work(tx: Transaction) -> list[str]:
        found = [tx.mcp_servers.tools(ACTOR.organization_id, row.id) for row in rows]
        return [tool.name for tools in found for tool in tools]

    # Which of them fails is not defined.
    assert await services.store.read(work) in (["read"], ["look"])
    said = [record.msg for record in caplog.records if record.msg.startswith("mcp.configured")]
    assert sorted(said) == ["mcp.configured_read", "mcp.configured_unavailable"]
    (endpoint, other) = mcp.listed
    assert {endpoint.server_name, other.server_name} == {"files", "site"}
    assert endpoint.is_trusted
