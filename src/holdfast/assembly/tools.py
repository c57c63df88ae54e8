"""Tools: the sandbox in which custom tools run, the toolbox that executes each call, and which connections come from a
tool."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from holdfast.adapters.sandbox.environments import ENVIRONMENTS, Environments
from holdfast.adapters.sandbox.isolation import (
    Isolation,
    find_visible_names,
    isolation_problem,
)
from holdfast.adapters.sandbox.leftovers import ToolRecord, sweep_leftovers
from holdfast.adapters.sandbox.plain_level import (
    describe_root_risk,
    find_tool_user,
    writable_problem,
)
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_connections import ProcToolConnections
from holdfast.adapters.store.factory import sqlite_path
from holdfast.adapters.store.file_permissions import sqlite_files
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.adapters.web.search import SearchOptions
from holdfast.config import Settings
from holdfast.errors import CannotStart

# The folder in the home that says which processes and folders tools have.
TOOL_RECORDS: Final = "tool-processes"

log = logging.getLogger(__name__)


async def open_sandbox(settings: Settings, stack: AsyncExitStack) -> SubprocessSandbox:
    """Raises CannotStart if the settings ask for isolation and it is not possible: tools never run with less."""
    isolation = build_isolation(settings)
    private = private_paths(settings)
    problem = writable_problem(settings.sandbox_writable, private)
    if problem is None and isolation is not None:
        problem = await asyncio.to_thread(isolation_problem, isolation)
    if problem is not None:
        raise CannotStart(problem)
    user = find_tool_user(settings.sandbox_user)
    risk = describe_root_risk(settings.sandbox_user, user, settings.home)
    if isolation is None and risk is not None:
        log.warning("sandbox.plain_as_root", extra={"advice": risk})
    records = settings.home / TOOL_RECORDS
    sandbox = SubprocessSandbox(
        limits=settings.sandbox_limits,
        isolation=isolation,
        environments=Environments(
            settings.home / ENVIRONMENTS, install_seconds=settings.tool_install_seconds
        ),
        hidden=private,
        writable=settings.sandbox_writable,
        user=user,
        record=ToolRecord(records),
    )
    stack.push_async_callback(sandbox.close)
    if await asyncio.to_thread(sweep_leftovers, records):
        sandbox.processes.report_lost()
    return sandbox


def build_toolbox(settings: Settings, sandbox: SubprocessSandbox) -> ToolRouter:
    keys = {
        "BRAVE_API_KEY": settings.brave_api_key,
        "TAVILY_API_KEY": settings.tavily_api_key,
        "EXA_API_KEY": settings.exa_api_key,
    }
    return ToolRouter(
        sandbox=sandbox,
        timeout_seconds=settings.tool_timeout_seconds,
        search_options=SearchOptions(
            engine=settings.search_engine,
            searxng_url=settings.searxng_url,
            keys={name: key for name, key in keys.items() if key},
        ),
    )


def open_tool_connections(
    settings: Settings, stack: AsyncExitStack, sandbox: SubprocessSandbox
) -> ProcToolConnections:
    tool_connections = ProcToolConnections(
        sandbox.processes,
        sandbox.tool_uids,
        is_alone=sqlite_path(settings.database_url) is not None,
    )
    stack.callback(tool_connections.close)
    return tool_connections


def private_paths(settings: Settings) -> tuple[Path, ...]:
    """What only the server may read: the home, and the files that are kept elsewhere: of a database, and of MCP servers."""
    files: list[Path] = []
    if (path := sqlite_path(settings.database_url)) is not None:
        # SQLite names its log after the file that a link leads to.
        files += (*sqlite_files(path.absolute()), *sqlite_files(path.resolve()))
    if settings.mcp_config is not None:
        files += (settings.mcp_config, settings.mcp_config.resolve())
    elsewhere = (file for file in files if not file.is_relative_to(settings.home))
    return (settings.home, *dict.fromkeys(elsewhere))


def build_isolation(settings: Settings) -> Isolation | None:
    if settings.sandbox != "isolated":
        return None
    home, *files = private_paths(settings)
    return Isolation(
        network=settings.sandbox_network,
        hidden=(str(home), *find_visible_names([home, *(file.parent for file in files)])),
        writable=tuple(map(str, settings.sandbox_writable)),
    )
