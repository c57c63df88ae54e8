"""The servers of the operator's file: each has a row, so that tools can belong to it, and its tools are read in after the
start. How it is reached stays in the file.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.mcp_servers import McpServer, Transport
from holdfast.errors import AlreadyExists
from holdfast.ports.mcp import ConfiguredServer
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_refresh

log = logging.getLogger(__name__)

MAX_READING: Final = 4
"""How many servers are asked for their tools at once."""


async def synchronise(services: Services, actor: Actor) -> Sequence[McpServer]:
    """Give each server of the file a row, and return the rows. The rows of servers that have left the file stay. A name that
    belongs to a server of the API is left to it, with a warning."""
    configured = services.mcp_options.configured
    if not configured:
        return []

    def work(tx: Transaction) -> list[McpServer]:
        rows = [_save(services, actor, tx, server) for server in configured.values()]
        return [row for row in rows if row is not None]

    try:
        rows = await services.store.write(work)
    except AlreadyExists:
        # Another server has added them at the same moment.
        rows = await services.store.write(work)
    kept = {row.name for row in rows}
    for name in configured.keys() - kept:
        log.warning("mcp.configured_name_taken", extra={"server": name})
    return rows


async def read_tools(services: Services, actor: Actor, servers: Sequence[McpServer]) -> None:
    """Read in the tools of the servers, some at once. A server that fails changes nothing for the others."""
    slots = asyncio.Semaphore(MAX_READING)

    async def read(server: McpServer) -> None:
        async with slots:
            await _read(services, actor, server)

    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(read(server))


async def _read(services: Services, actor: Actor, server: McpServer) -> None:
    try:
        await mcp_refresh.refresh(services, actor, server.id)
    except Exception as error:  # noqa: BLE001 - a server that fails must not end ours
        # Addresses may have keys in them, so of those only the kind of error is logged.
        is_program = server.transport is Transport.STDIO
        reason = str(error) if is_program else type(error).__name__
        log.warning("mcp.configured_unavailable", extra={"server": server.name, "reason": reason})
    else:
        log.info("mcp.configured_read", extra={"server": server.name})


def _save(
    services: Services, actor: Actor, tx: Transaction, configured: ConfiguredServer
) -> McpServer | None:
    transport = _transport(configured)
    now = services.clock.now()
    stored = tx.mcp_servers.find_by_name(actor.organization_id, configured.name)
    if stored is None:
        added = McpServer(
            id=services.ids.new_id(Kind.MCP_SERVER),
            organization_id=actor.organization_id,
            name=configured.name,
            transport=transport,
            is_configured=True,
            created_at=now,
            updated_at=now,
        )
        tx.mcp_servers.add(added)
        return added
    if not stored.is_configured:
        return None
    if stored.transport is not transport:
        stored = tx.mcp_servers.get_for_update(actor.organization_id, stored.id)
        stored = structs.replace(stored, transport=transport, updated_at=now)
        tx.mcp_servers.save(stored)
    return stored


def _transport(configured: ConfiguredServer) -> Transport:
    if configured.command is not None:
        return Transport.STDIO
    return Transport.SSE if configured.is_sse else Transport.STREAMABLE_HTTP
