"""MCP servers in the store: one per name, with encrypted secrets, and with their tools."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from tests.support.values import Make, ident, moment

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.mcp_servers import McpSecrets, McpServer, Transport
from holdfast.core.mcp_sessions import McpSession, SessionStatus
from holdfast.core.tools import Tool, ToolKind
from holdfast.errors import AlreadyExists, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
FIRST_AGENT = ident("agent", 1)
SECOND_AGENT = ident("agent", 2)


def server(number: int = 1, **fields: Any) -> McpServer:
    values: dict[str, Any] = {
        "id": ident("mcp_server", number),
        "organization_id": ORG,
        "name": f"server-{number}",
        "transport": Transport.STREAMABLE_HTTP,
        "server_url": "https://mcp.example/mcp",
        "secrets": McpSecrets(
            auth_token="very-secret", custom_headers={"X-Key": "more-secret"}, env={"A": "hidden"}
        ),
        "created_at": moment(number),
        "updated_at": moment(number),
    }
    return McpServer(**values | fields)


def tool(number: int, server_id: str | None = ident("mcp_server", 1), **fields: Any) -> Tool:
    values: dict[str, Any] = {
        "id": ident("tool", number),
        "organization_id": ORG,
        "name": f"tool-{number}",
        "description": "",
        "json_schema": {},
        "created_at": moment(number),
        "updated_at": moment(number),
        "kind": ToolKind.MCP,
        "mcp_server_id": server_id,
    }
    return Tool(**values | fields)


async def test_a_server_comes_back_with_all_its_fields(any_store: Store) -> None:
    stored = server(auth_header="X-Key", args=("a", "b c"), command="run", created_by_id="user-1")
    await any_store.write(lambda tx: tx.mcp_servers.add(stored))

    assert await any_store.read(lambda tx: tx.mcp_servers.get(ORG, stored.id)) == stored
    assert await any_store.read(lambda tx: tx.mcp_servers.find_by_name(ORG, stored.name)) == stored
    assert await any_store.read(lambda tx: tx.mcp_servers.find_by_name(ORG, "other")) is None
    changed = replace(stored, secrets=McpSecrets(), name="new", updated_at=moment(3))
    await any_store.write(lambda tx: tx.mcp_servers.save(changed))
    assert await any_store.read(lambda tx: tx.mcp_servers.get(ORG, stored.id)) == changed


async def test_a_server_of_another_organisation_is_not_found(any_store: Store) -> None:
    stored = server()
    await any_store.write(lambda tx: tx.mcp_servers.add(stored))

    assert await any_store.read(lambda tx: tx.mcp_servers.find_by_name("org-2", "server-1")) is None
    assert await any_store.read(lambda tx: tx.mcp_servers.list("org-2")) == []
    assert await any_store.read(lambda tx: tx.mcp_servers.tools("org-2", stored.id)) == []
    for work in (
        lambda tx: tx.mcp_servers.get("org-2", stored.id),
        lambda tx: tx.mcp_servers.delete("org-2", stored.id),
        lambda tx: tx.mcp_servers.save(replace(stored, organization_id="org-2")),
    ):
        with pytest.raises(NotFound, match="MCPServer not found with id="):
            await any_store.write(work)


@pytest.mark.tools(3, 19)
async def test_a_servers_name_is_unique_in_its_organisation(any_store: Store) -> None:
    def add_two(tx: Transaction) -> None:
        tx.mcp_servers.add(server(1))
        tx.mcp_servers.add(server(2))
        tx.mcp_servers.add(server(3, name="server-1", organization_id="org-2"))

    await any_store.write(add_two)

    with pytest.raises(AlreadyExists, match="MCP server with this name"):
        await any_store.write(lambda tx: tx.mcp_servers.add(server(4, name="server-1")))
    with pytest.raises(AlreadyExists, match="MCP server with this name"):
        await any_store.write(lambda tx: tx.mcp_servers.save(server(2, name="server-1")))
    listed = await any_store.read(lambda tx: tx.mcp_servers.list(ORG))
    assert [item.name for item in listed] == ["server-1", "server-2"]


async def test_servers_are_listed_oldest_first(any_store: Store) -> None:
    def add_all(tx: Transaction) -> None:
        for number in (3, 1, 2):
            tx.mcp_servers.add(server(number))

    await any_store.write(add_all)

    listed = await any_store.read(lambda tx: tx.mcp_servers.list(ORG))
    assert [item.name for item in listed] == ["server-1", "server-2", "server-3"]


async def test_no_secret_is_stored_in_clear(store: SqliteStore) -> None:
    await store.write(lambda tx: tx.mcp_servers.add(server()))

    def read_row(tx: Transaction) -> str:
        connection = tx.mcp_servers._connection  # type: ignore[attr-defined]  # what a thief would see
        return str(connection.execute(text("SELECT * FROM mcp_servers")).all())

    row = await store.read(read_row)
    assert "server-1" in row
    for secret in ("very-secret", "more-secret", "hidden", "X-Key"):
        assert secret not in row


@pytest.mark.tools(20)
async def test_a_servers_tools_and_logins_are_deleted_with_it(any_store: Store) -> None:
    session = McpSession(
        id="mcp-oauth-1",
        organization_id=ORG,
        user_id="user-1",
        server_id=server(1).id,
        server_url="https://mcp.example/mcp",
        status=SessionStatus.AUTHORIZED,
        created_at=moment(1),
        updated_at=moment(1),
    )

    def add_all(tx: Transaction) -> None:
        tx.mcp_servers.add(server(1))
        tx.mcp_servers.add(server(2))
        tx.agents.add(Make().agent(id=FIRST_AGENT))
        tx.tools.add_all([tool(1), tool(2), tool(3, server(2).id), tool(4, None)])
        tx.agents.attach_tools(FIRST_AGENT, [tool(number).id for number in (1, 2, 3, 4)])
        tx.mcp_sessions.add(session)

    await any_store.write(add_all)
    await any_store.write(lambda tx: tx.mcp_servers.delete(ORG, server(1).id))

    held = await any_store.read(lambda tx: tx.agents.tools([FIRST_AGENT]))
    assert [item.name for item in held[FIRST_AGENT]] == ["tool-3", "tool-4"]
    assert await any_store.read(lambda tx: tx.mcp_servers.tools(ORG, server(1).id)) == []
    assert await any_store.read(lambda tx: tx.mcp_sessions.get(session.id)) is None
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.mcp_servers.delete(ORG, server(1).id))


async def test_many_tools_are_added_saved_and_deleted_at_once(any_store: Store) -> None:
    def add_all(tx: Transaction) -> None:
        tx.mcp_servers.add(server())
        tx.tools.add_all([tool(number) for number in (2, 1, 3)])
        tx.tools.add_all([])

    await any_store.write(add_all)
    stored = await any_store.read(lambda tx: tx.mcp_servers.tools(ORG, server().id))
    assert stored == [tool(1), tool(2), tool(3)]

    changed = [replace(item, description="new", updated_at=moment(9)) for item in stored[:2]]

    def change(tx: Transaction) -> None:
        tx.tools.save_all([*changed, tool(8)])
        tx.tools.save_all([replace(tool(3), organization_id="org-2", description="not mine")])
        tx.tools.save_all([])

    await any_store.write(change)
    stored = await any_store.read(lambda tx: tx.mcp_servers.tools(ORG, server().id))
    assert stored == [*changed, tool(3)]

    def delete(tx: Transaction) -> None:
        tx.tools.delete_all(ORG, [tool(1).id, tool(8).id])
        tx.tools.delete_all("org-2", [tool(2).id])

    await any_store.write(delete)
    stored = await any_store.read(lambda tx: tx.mcp_servers.tools(ORG, server().id))
    assert [item.name for item in stored] == ["tool-2", "tool-3"]


async def test_a_taken_name_stores_none_of_many_tools(any_store: Store) -> None:
    await any_store.write(lambda tx: tx.tools.add(tool(9, None, name="tool-2")))
    await any_store.write(lambda tx: tx.mcp_servers.add(server()))

    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.tools.add_all([tool(1), tool(2), tool(3)]))
    assert await any_store.read(lambda tx: tx.mcp_servers.tools(ORG, server().id)) == []


async def test_the_agents_that_have_tools_are_found(any_store: Store) -> None:
    def add_all(tx: Transaction) -> None:
        tx.mcp_servers.add(server())
        tx.tools.add_all([tool(1), tool(2), tool(3)])
        tx.agents.add(Make().agent(id=FIRST_AGENT))
        tx.agents.add(Make().agent(id=SECOND_AGENT))
        tx.agents.attach_tools(FIRST_AGENT, [tool(2).id, tool(1).id])
        tx.agents.attach_tools(SECOND_AGENT, [tool(3).id])

    await any_store.write(add_all)

    async def find(*numbers: int) -> dict[str, list[str]]:
        ids = [tool(number).id for number in numbers]
        found = await any_store.read(lambda tx: tx.agents.holders(ids))
        return {agent_id: list(tools) for agent_id, tools in found.items()}

    assert await find(1, 2) == {FIRST_AGENT: [tool(2).id, tool(1).id]}
    assert await find(1, 3) == {FIRST_AGENT: [tool(1).id], SECOND_AGENT: [tool(3).id]}
    assert await find() == {}


async def test_changes_of_one_server_at_the_same_moment_are_all_kept(any_store: Store) -> None:
    stored = server()
    await any_store.write(lambda tx: tx.mcp_servers.add(stored))

    def work(tx: Transaction) -> None:
        found = tx.mcp_servers.get_for_update(ORG, stored.id)
        tx.mcp_servers.save(replace(found, listings=found.listings + 1))

    await asyncio.gather(*(any_store.write(work) for _ in range(20)))

    assert (await any_store.read(lambda tx: tx.mcp_servers.get(ORG, stored.id))).listings == 20
    with pytest.raises(NotFound, match="MCPServer not found"):
        await any_store.write(lambda tx: tx.mcp_servers.get_for_update("org-x", stored.id))
