"""Reading the tools of an MCP server in: what it lists becomes what is stored (tools-v1 §1.6)."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import structs

from holdfast.core import mcp_tools, tool_rules
from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.mcp_servers import McpServer, RemoteTool
from holdfast.core.mcp_tools import CheckedTool, Listing, ToolChanges
from holdfast.core.tools import Tool
from holdfast.errors import AlreadyExists, Conflict, InvalidArgument, NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_endpoints
from holdfast.usecases.mcp_endpoints import McpCaller

# How often a server is asked again because others have stored its tools meanwhile.
MAX_ATTEMPTS: Final = 10

_log = logging.getLogger(__name__)


async def refresh(
    services: Services, actor: Actor, server_id: str, agent_id: str | None = None
) -> ToolChanges:
    """Ask the server for its tools, with the secrets of this agent if one is given, and store what has changed."""

    def load(tx: Transaction) -> tuple[McpServer, McpCaller]:
        server = tx.mcp_servers.get(actor.organization_id, server_id)
        return server, _load_caller(tx, actor, agent_id)

    for _ in range(MAX_ATTEMPTS):
        server, caller = await services.store.read(load)
        listing = await read_listing(services, server, caller)
        changes = await store_listing(services, actor, server, listing)
        if changes is not None:
            return changes
    raise Conflict(
        f"The tools of the MCP server {server.name} are being read by others. Try again."
    )


async def read_listing(services: Services, server: McpServer, caller: McpCaller) -> Listing:
    """The tools that the server lists now."""
    listed = await mcp_endpoints.use(services, server, caller, services.mcp.list_tools)
    return await check_listed(listed)


async def check_listed(listed: Sequence[RemoteTool]) -> Listing:
    """In a thread, since checking hundreds of schemas would block the event loop."""
    return await asyncio.to_thread(mcp_tools.check_listing, listed)


async def store_listing(
    services: Services,
    actor: Actor,
    server: McpServer,
    listing: Listing,
    *,
    deletes: bool = True,
) -> ToolChanges | None:
    """Make the stored tools of the server those that it lists: all or nothing. ``server``: as it was read before it was
    asked. None if the tools were stored meanwhile: the listing may be older than they are. ``deletes``: otherwise, tools
    that the server does not list stay."""
    now = services.clock.now()

    def work(tx: Transaction) -> ToolChanges | None:
        return _apply_listing(tx, services, actor, server, listing, now=now, deletes=deletes)

    try:
        changes = await services.store.write(work)
    except AlreadyExists:
        # Another server of this deployment has stored a tool of that name at the same moment.
        changes = await services.store.write(work)
    if changes is not None and changes.skipped:
        names = [skipped.name for skipped in changes.skipped]
        fields = {"server_id": server.id, "count": len(names), "tools": names[:10]}
        _log.warning("mcp.tools_skipped", extra=fields)
    return changes


async def register(services: Services, actor: Actor, server_id: str, name: str) -> Tool:
    """Store one tool of the server, also one whose schema no provider accepts."""
    server = await services.store.read(
        lambda tx: tx.mcp_servers.get(actor.organization_id, server_id)
    )
    caller = McpCaller(organization_id=actor.organization_id, user_id=actor.user_id)
    listing = await read_listing(services, server, caller)
    checked = next((tool for tool in listing.tools if tool.name == name), None)
    if checked is None:
        raise NotFound(
            f"The MCP server {server.name} has no tool '{name[: mcp_tools.MAX_QUOTED_CHARS]}'."
        )
    if not checked.json_schema["parameters"]:
        raise InvalidArgument(f"The tool cannot be stored. {mcp_tools.find_fault(checked)}")
    now = services.clock.now()

    def work(tx: Transaction) -> Tool:
        return _register(tx, services, actor, server_id, checked, now=now)

    return await services.store.write(work)


def _load_caller(tx: Transaction, actor: Actor, agent_id: str | None) -> McpCaller:
    caller = McpCaller(organization_id=actor.organization_id, user_id=actor.user_id)
    if agent_id is None:
        return caller
    tx.agents.get(actor.organization_id, agent_id)
    secrets = tx.agents.secrets([agent_id]).get(agent_id, ())
    return structs.replace(
        caller, agent_id=agent_id, values={secret.key: secret.value for secret in secrets}
    )


def _apply_listing(
    tx: Transaction,
    services: Services,
    actor: Actor,
    seen: McpServer,
    listing: Listing,
    *,
    now: datetime,
    deletes: bool,
) -> ToolChanges | None:
    server = tx.mcp_servers.get_for_update(actor.organization_id, seen.id)
    if server.listings != seen.listings:
        return None
    tx.mcp_servers.save(structs.replace(server, listings=server.listings + 1))
    approve = services.mcp_options.approve
    changes = _compare(tx, server, listing, approve)
    if not deletes:
        changes = structs.replace(changes, deleted=())
    if changes.deleted:
        tx.tools.delete_all(actor.organization_id, [tool.id for tool in changes.deleted])
    updated = [
        structs.replace(tool, updated_at=now, last_updated_by_id=actor.user_id)
        for tool in changes.updated
    ]
    tx.tools.save_all(updated)
    tx.tools.add_all(
        [
            mcp_tools.build_tool(
                checked,
                server,
                tool_id=services.ids.new_id(Kind.TOOL),
                now=now,
                approve=approve,
                user_id=actor.user_id,
            )
            for checked in changes.added
        ]
    )
    _guard(tx, actor, [tool for tool in updated if tool.name in changes.guarded], now)
    return changes


def _compare(tx: Transaction, server: McpServer, listing: Listing, approve: str) -> ToolChanges:
    stored = tx.mcp_servers.tools(server.organization_id, server.id)
    own = {tool.name for tool in stored}
    new = [tool.name for tool in listing.tools if tool.name not in own]
    taken = {tool.name for tool in tx.tools.find(server.organization_id, new)} if new else set()
    return mcp_tools.compare(server, stored, listing, taken, approve)


def _guard(tx: Transaction, actor: Actor, tools: list[Tool], now: datetime) -> None:
    """Add approval rules to the agents that have these tools already. Those that get them later get the rules with them."""
    if not tools:
        return
    names = {tool.id: tool.name for tool in tools}
    held = tx.agents.holders(names.keys())
    for agent in tx.agents.find_for_update(actor.organization_id, held.keys()):
        rules = tool_rules.with_approvals(
            agent.tool_rules, [names[tool_id] for tool_id in held[agent.id]]
        )
        if rules != agent.tool_rules:
            tx.agents.save(
                structs.replace(
                    agent, tool_rules=rules, updated_at=now, last_updated_by_id=actor.user_id
                )
            )


def _register(
    tx: Transaction,
    services: Services,
    actor: Actor,
    server_id: str,
    checked: CheckedTool,
    *,
    now: datetime,
) -> Tool:
    server = tx.mcp_servers.get(actor.organization_id, server_id)
    approve = services.mcp_options.approve
    found = tx.tools.find(actor.organization_id, [checked.name])
    if not found:
        tool = mcp_tools.build_tool(
            checked,
            server,
            tool_id=services.ids.new_id(Kind.TOOL),
            now=now,
            approve=approve,
            user_id=actor.user_id,
        )
        tx.tools.add(tool)
        return tool
    before = found[0]
    if before.mcp_server_id != server.id:
        raise AlreadyExists(
            f"There is another tool of the name '{before.name}', which is not of the MCP server {server.name}."
        )
    changed = mcp_tools.update_tool(before, checked, server, approve)
    if changed == before:
        return before
    changed = structs.replace(changed, updated_at=now, last_updated_by_id=actor.user_id)
    tx.tools.save(changed)
    if changed.default_requires_approval and not before.default_requires_approval:
        _guard(tx, actor, [changed], now)
    return changed
