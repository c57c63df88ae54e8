"""The V1 wire as one value: what the generic part of ``http`` must know about it."""

import re
from typing import Final

from holdfast import __version__
from holdfast.http.letta_v1.routes import (
    agent_files,
    agent_relations,
    agents,
    approvals,
    archival_memory,
    archives,
    blocks,
    cancel,
    compaction,
    conversations,
    embeddings,
    files,
    folders,
    health,
    identities,
    mcp_logins,
    mcp_servers,
    message_search,
    messages,
    models,
    old_mcp_servers,
    passages,
    providers,
    runs,
    servers,
    steps,
    tags,
    tools,
)
from holdfast.http.letta_v1.schemas.errors import ANY_PROBLEM
from holdfast.http.letta_v1.schemas.health import Health
from holdfast.http.letta_v1.to_wire.errors import (
    render_error,
    render_invalid_request,
    render_refusal,
)
from holdfast.http.wire import Wire

LETTA_V1: Final = Wire(
    paths=re.compile(r"/(v1|latest)(/|$)"),
    # Routes are tried in this order, so those that are used most come first.
    routers=(
        health.router,
        health.latest_router,
        messages.router,
        conversations.router,
        cancel.router,
        agents.router,
        agent_relations.router,
        agent_files.router,
        runs.router,
        steps.router,
        steps.telemetry_router,
        providers.router,
        mcp_logins.router,
        mcp_logins.old_router,
        mcp_logins.callback_router,
        mcp_servers.router,
        old_mcp_servers.router,
        tools.router,
        blocks.router,
        archival_memory.router,
        passages.search_router,
        passages.router,
        archives.router,
        archives.agent_router,
        identities.router,
        identities.agent_router,
        identities.block_router,
        embeddings.router,
        approvals.router,
        models.router,
        files.router,
        files.sources_router,
        files.upload_router,
        files.sources_upload_router,
        folders.router,
        folders.sources_router,
        compaction.router,
        tags.router,
        message_search.router,
        servers.router,
        runs.internal_router,
    ),
    # wire-v1 §1.3
    open_paths=frozenset(
        {
            "/v1/health",
            "/v1/ready",
            "/latest/health",
            "/latest/ready",
            # tools-v1 §1.9: browsers come from an authorization server, without the password.
            mcp_logins.CALLBACK_PATH,
        }
    ),
    password_headers={"authorization": "bearer ", "x-bare-password": "password "},
    # wire-v1 §1.6
    collection_paths=re.compile(r"/(v1|latest)/[^/]+"),
    send_paths=re.compile(r"/v1/(agents|conversations)/[^/]+/messages(/stream|/async)?"),
    upload_paths=re.compile(r"/v1/(folders|sources)/[^/]+/upload"),
    ready_paths=frozenset({"/v1/ready/", "/latest/ready/"}),
    render_not_ready=lambda status: Health(__version__, status),
    render_error=render_error,
    render_invalid_request=render_invalid_request,
    render_refusal=render_refusal,
    error_bodies=ANY_PROBLEM,
)
