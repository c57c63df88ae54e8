"""MCP servers to create and to change (tools-v1 §1.3, §1.10)."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import UNSET, UnsetType
from pydantic import BaseModel

from holdfast.core.mcp_servers import Transport
from holdfast.http.letta_v1.schemas.mcp_servers import (
    McpHttpChanges,
    McpHttpConfig,
    McpServerCreate,
    McpServerUpdate,
    McpStdioChanges,
    McpStdioConfig,
)
from holdfast.http.letta_v1.schemas.old_mcp_servers import (
    OldMcpChanges,
    OldMcpHttp,
    OldMcpProgram,
    OldMcpStdio,
)
from holdfast.usecases.mcp_forms import McpServerForm

T = TypeVar("T")


def new_mcp_server(body: McpServerCreate) -> McpServerForm:
    return _config_form(body.server_name, body.config)


def mcp_server_changes(body: McpServerUpdate) -> McpServerForm:
    return _config_form(body.server_name, body.config)


def old_new_mcp_server(body: OldMcpStdio | OldMcpHttp) -> McpServerForm:
    if isinstance(body, OldMcpStdio):
        return _program_form(body.server_name, body)
    return _http_form(body.server_name, body, body.type)


def old_mcp_server_changes(body: OldMcpChanges) -> McpServerForm:
    if body.stdio_config is not None:
        return _program_form(body.server_name, body.stdio_config)
    token = body.token if "token" in body.model_fields_set else UNSET
    return McpServerForm(
        name=body.server_name,
        server_url=body.server_url,
        auth_header=_read_field(body, "auth_header", body.auth_header),
        auth_token=body.auth_token if "auth_token" in body.model_fields_set else token,
        custom_headers=_read_field(body, "custom_headers", body.custom_headers),
    )


def _config_form(
    name: str | None, config: McpStdioConfig | McpHttpConfig | McpStdioChanges | McpHttpChanges
) -> McpServerForm:
    if isinstance(config, McpStdioConfig | McpStdioChanges):
        return _program_form(name, config)
    return _http_form(name, config, config.mcp_server_type)


def _program_form(
    name: str | None, config: McpStdioConfig | McpStdioChanges | OldMcpStdio | OldMcpProgram
) -> McpServerForm:
    env: Mapping[str, str] | UnsetType | None = _read_field(config, "env", config.env)
    return McpServerForm(
        name=name,
        transport=Transport.STDIO,
        command=config.command,
        args=None if config.args is None else tuple(config.args),
        env=env,
    )


def _http_form(
    name: str | None, config: McpHttpConfig | McpHttpChanges | OldMcpHttp, transport: str | None
) -> McpServerForm:
    headers: Mapping[str, str] | UnsetType | None = _read_field(
        config, "custom_headers", config.custom_headers
    )
    return McpServerForm(
        name=name,
        transport=None if transport is None else Transport(transport),
        server_url=config.server_url,
        auth_header=_read_field(config, "auth_header", config.auth_header),
        auth_token=_read_field(config, "auth_token", config.auth_token),
        custom_headers=headers,
    )


def _read_field(body: BaseModel, field: str, value: T) -> T | UnsetType:
    """Null clears a stored value, and what is absent leaves it."""
    return value if field in body.model_fields_set else UNSET
