"""MCP servers: create, list, retrieve, update, delete. Their tools are in ``mcp_tools`` and ``mcp_refresh``."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from holdfast.core import mcp_tools
from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.mcp_addresses import show_address
from holdfast.core.mcp_servers import MASK, McpSecrets, McpServer, Transport
from holdfast.errors import CallerError, InvalidArgument, McpError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_refresh
from holdfast.usecases.mcp_endpoints import find_url
from holdfast.usecases.mcp_forms import McpServerForm, apply_form

# Per organization: a list of them has no pages.
MAX_SERVERS: Final = 1_000
# How long creating a server waits for its tools. Clients give up after 60 s, and the server is stored by then.
READING_SECONDS: Final = 45.0

_log = logging.getLogger(__name__)


async def create(services: Services, actor: Actor, form: McpServerForm) -> McpServer:
    """Store a server, then try to read its tools in. A server that does not answer is stored all the same: its tools can
    be read in later."""
    server = build_server(services, actor, form)

    def work(tx: Transaction) -> None:
        if len(tx.mcp_servers.list(actor.organization_id)) >= MAX_SERVERS:
            raise InvalidArgument(
                f"There are {MAX_SERVERS} MCP servers already, and no more than that. Delete one first."
            )
        tx.mcp_servers.add(server)

    await services.store.write(work)
    try:
        async with asyncio.timeout(READING_SECONDS):
            await mcp_refresh.refresh(services, actor, server.id)
    except (McpError, CallerError, TimeoutError) as error:
        # Only the kind: the text may have the address, and some addresses have keys in them.
        fields = {"server_id": server.id, "server_name": server.name, "error": type(error).__name__}
        _log.warning("mcp.tools_not_read", extra=fields)
    return server


def build_server(services: Services, actor: Actor, form: McpServerForm) -> McpServer:
    """The server that the form describes. It is not stored."""
    now = services.clock.now()
    if not form.name:
        raise InvalidArgument("An MCP server needs a name.")
    is_program = form.command is not None
    usual = Transport.STDIO if is_program else Transport.STREAMABLE_HTTP
    server = McpServer(
        id=services.ids.new_id(Kind.MCP_SERVER),
        organization_id=actor.organization_id,
        name=form.name,
        transport=form.transport or usual,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )
    return apply_form(services, server, structs.replace(form, transport=server.transport))


async def list_all(services: Services, actor: Actor) -> Sequence[McpServer]:
    """All servers, oldest first, as they may be shown."""
    stored = await services.store.read(lambda tx: tx.mcp_servers.list(actor.organization_id))
    return [_describe(services, server) for server in stored]


async def retrieve(services: Services, actor: Actor, server_id: str) -> McpServer:
    """The server, as it may be shown."""
    server = await services.store.read(
        lambda tx: tx.mcp_servers.get(actor.organization_id, server_id)
    )
    return _describe(services, server)


async def find_by_name(services: Services, actor: Actor, name: str) -> McpServer | None:
    """The stored server of that name; None if there is none."""
    return await services.store.read(
        lambda tx: tx.mcp_servers.find_by_name(actor.organization_id, name)
    )


async def update(
    services: Services, actor: Actor, server_id: str, form: McpServerForm
) -> McpServer:
    """Update a server. Its tools follow a new name; they are not read again."""
    now = services.clock.now()

    def work(tx: Transaction) -> McpServer:
        before = tx.mcp_servers.get_for_update(actor.organization_id, server_id)
        if before.is_configured:
            raise InvalidArgument(_explain_configured(services, before))
        changed = structs.replace(
            apply_form(services, before, form), updated_at=now, last_updated_by_id=actor.user_id
        )
        tx.mcp_servers.save(changed)
        if changed.name != before.name:
            tools = tx.mcp_servers.tools(actor.organization_id, server_id)
            renamed = [mcp_tools.rename_server(tool, before.name, changed) for tool in tools]
            tx.tools.save_all(renamed)
        return changed

    changed = await services.store.write(work)
    await services.mcp.forget(server_id)
    return changed


async def delete(services: Services, actor: Actor, server_id: str) -> None:
    """Delete a server with its tools, which agents lose, and with the logins of its users."""

    def work(tx: Transaction) -> None:
        server = tx.mcp_servers.get(actor.organization_id, server_id)
        if server.is_configured and server.name in services.mcp_options.configured:
            raise InvalidArgument(
                f"The MCP server {server.name} is in the operator's file (HOLDFAST_MCP_CONFIG). It can only be deleted there."
            )
        tx.mcp_servers.delete(actor.organization_id, server_id)
        url = find_url(services, server)
        if url is not None:
            tx.mcp_sessions.delete_unlinked(actor.organization_id, actor.user_id, url)

    await services.store.write(work)
    await services.mcp.forget(server_id)


def _explain_configured(services: Services, server: McpServer) -> str:
    """Why callers cannot change the server."""
    if server.name in services.mcp_options.configured:
        return f"The MCP server {server.name} is in the operator's file (HOLDFAST_MCP_CONFIG). It can only be changed there."
    return (
        f"The MCP server {server.name} was in the operator's file (HOLDFAST_MCP_CONFIG) and is not there any more. "
        "It can be deleted, but not changed."
    )


def _describe(services: Services, server: McpServer) -> McpServer:
    """The server with what the operator's file says of it. Who uses the API is not the operator: arguments and paths may have
    secrets in them, so they are not shown."""
    configured = services.mcp_options.configured.get(server.name)
    if not server.is_configured or configured is None:
        return server
    if configured.command is not None:
        return structs.replace(
            server,
            transport=Transport.STDIO,
            command=configured.command,
            args=(MASK,) * len(configured.args),
            secrets=McpSecrets(env=dict(configured.env)),
        )
    return structs.replace(
        server,
        transport=Transport.SSE if configured.is_sse else Transport.STREAMABLE_HTTP,
        server_url=show_address(configured.url or "", is_configured=True),
        secrets=McpSecrets(custom_headers=dict(configured.headers)),
    )
