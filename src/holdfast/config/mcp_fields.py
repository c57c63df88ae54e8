"""The settings of MCP servers, which give tools from elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from holdfast.config.document_fields import DocumentFields
from holdfast.config.parsing import (
    HTTP_URL_TEXT,
    integer_between,
    one_of,
    parse_http_url,
    parse_path,
    parse_positive_seconds,
    parse_switch,
)
from holdfast.config.spec import SettingSpec

MCP_STDIO: Final = ("config", "api")
MCP_APPROVE: Final = ("never", "destructive", "always")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpFields(DocumentFields):
    mcp_config: Annotated[
        Path | None,
        SettingSpec(
            description='A JSON file with MCP servers, in the common form `{"mcpServers": {"<name>": {"command": …, "args": […], "env": {…}}}}` or with `url` and `headers`.',
            variables=("HOLDFAST_MCP_CONFIG",),
            parse=parse_path,
            accepts="a path",
        ),
    ] = None
    mcp_stdio: Annotated[
        str,
        SettingSpec(
            description="Who may name commands that are run as MCP servers: `config`, only the file of `HOLDFAST_MCP_CONFIG`; `api`, everybody who may use the API, who can then run any program on this machine.",
            variables=("HOLDFAST_MCP_STDIO",),
            parse=one_of(MCP_STDIO),
            accepts="config or api",
        ),
    ] = "config"
    mcp_disable_stdio: Annotated[
        bool,
        SettingSpec(
            description="V1's name: `false` means the same as `HOLDFAST_MCP_STDIO=api`.",
            variables=("MCP_DISABLE_STDIO",),
            parse=parse_switch,
            accepts="true or false",
        ),
    ] = True
    mcp_approve: Annotated[
        str,
        SettingSpec(
            description="Which tools of MCP servers need a person's approval unless an agent says otherwise: `never` any, `destructive` ones (all that are not marked as read-only or harmless), or `always` all.",
            variables=("HOLDFAST_MCP_APPROVE",),
            parse=one_of(MCP_APPROVE),
            accepts="never, destructive or always",
        ),
    ] = "never"
    mcp_connect_seconds: Annotated[
        float,
        SettingSpec(
            description="How long connecting to an MCP server may take.",
            variables=("HOLDFAST_MCP_CONNECT_SECONDS", "MCP_CONNECT_TO_SERVER_TIMEOUT"),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 30.0
    mcp_list_seconds: Annotated[
        float,
        SettingSpec(
            description="How long listing the tools of an MCP server may take.",
            variables=("HOLDFAST_MCP_LIST_SECONDS", "MCP_LIST_TOOLS_TIMEOUT"),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 30.0
    mcp_call_seconds: Annotated[
        float,
        SettingSpec(
            description="How long one call of a tool of an MCP server may take.",
            variables=("HOLDFAST_MCP_CALL_SECONDS", "MCP_EXECUTE_TOOL_TIMEOUT"),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 60.0
    mcp_idle_seconds: Annotated[
        float,
        SettingSpec(
            description="How long a connection to an MCP server stays open without a call.",
            variables=("HOLDFAST_MCP_IDLE_SECONDS",),
            parse=parse_positive_seconds,
            accepts="a number of seconds, more than 0",
        ),
    ] = 300.0
    mcp_connections: Annotated[
        int,
        SettingSpec(
            description="How many connections to MCP servers may be open; beyond it the one that was idle longest is closed, and a call waits if none is idle.",
            variables=("HOLDFAST_MCP_CONNECTIONS",),
            parse=integer_between(1, 10_000),
            accepts="a number from 1 to 10000",
        ),
    ] = 200
    mcp_result_bytes: Annotated[
        int,
        SettingSpec(
            description="The largest answer of an MCP server; a call with a larger one fails.",
            variables=("HOLDFAST_MCP_RESULT_BYTES",),
            parse=integer_between(1024, 2**40),
            accepts="a number of bytes, 1024 or more",
        ),
    ] = 32 * 1024**2
    public_url: Annotated[
        str | None,
        SettingSpec(
            description="Where browsers reach this server, for the end of a login at an MCP server.",
            variables=("HOLDFAST_PUBLIC_URL", "LETTA_AGENTS_ENDPOINT"),
            parse=parse_http_url,
            accepts=HTTP_URL_TEXT,
            default="the address of the request that begins the login",
        ),
    ] = None
