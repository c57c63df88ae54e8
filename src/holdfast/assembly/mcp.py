"""The client of MCP servers, and what the operator allows and names of them."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.store.file_permissions import is_exposed
from holdfast.config import Settings
from holdfast.config.mcp_file import McpFile, read_mcp_file
from holdfast.errors import SettingInvalid
from holdfast.ports.doctor_check import Check, Verdict
from holdfast.ports.mcp import McpOptions

_SUBJECT: Final = "mcp servers"

log = logging.getLogger(__name__)


def open_mcp(
    settings: Settings, stack: AsyncExitStack, sandbox: SubprocessSandbox
) -> PooledMcpClient:
    """Nothing of the SDK is imported before the first call. Servers that are programs run in the sandbox of tools."""
    programs = StdioServers(sandbox, max_message_bytes=settings.mcp_result_bytes)
    client = PooledMcpClient(
        ClientOptions(
            connect_seconds=settings.mcp_connect_seconds,
            list_seconds=settings.mcp_list_seconds,
            call_seconds=settings.mcp_call_seconds,
            idle_seconds=settings.mcp_idle_seconds,
            max_connections=settings.mcp_connections,
            max_result_bytes=settings.mcp_result_bytes,
        ),
        settings.allowed_private_hosts,
        open_stdio=programs.open,
    )
    stack.push_async_callback(client.aclose)
    return client


def read_mcp_options(settings: Settings) -> McpOptions:
    """Raises SettingInvalid if the operator's file cannot be used."""
    found = McpFile({})
    if settings.mcp_config is not None:
        found = read_mcp_file(settings.mcp_config, os.environ)
    for sentence in found.ignored:
        log.warning(
            "mcp.config_ignored", extra={"path": str(settings.mcp_config), "reason": sentence}
        )
    return McpOptions(
        stdio_over_api=settings.mcp_stdio == "api" or not settings.mcp_disable_stdio,
        approve=settings.mcp_approve,
        configured=found.servers,
        public_url=settings.public_url,
    )


def check_mcp_file(path: Path | None) -> Iterator[Check]:
    """Whether the operator's file can be used, and who else may read it."""
    if path is None:
        return
    try:
        found = read_mcp_file(path, os.environ)
    except SettingInvalid as error:
        yield Check(Verdict.PROBLEM, _SUBJECT, str(error))
        return
    names = ", ".join(found.servers) or "none"
    yield Check(Verdict.GOOD, _SUBJECT, f"{path} names {len(found.servers)}: {names}.")
    for sentence in found.ignored:
        yield Check(Verdict.NOTE, _SUBJECT, f"{path}: {sentence}")
    if found.has_secrets and is_exposed(path):
        message = f"Other users of this machine can read {path}, which may contain secrets: chmod 600 {path}"
        yield Check(Verdict.NOTE, _SUBJECT, message)
    for server in found.servers.values():
        if server.command is not None and _is_missing(server.command, server.env.get("PATH")):
            message = f"The command of the server {server.name!r} was not found: {server.command}"
            yield Check(Verdict.NOTE, _SUBJECT, message)


def _is_missing(command: str, path: str | None) -> bool:
    return shutil.which(command, path=path) is None
