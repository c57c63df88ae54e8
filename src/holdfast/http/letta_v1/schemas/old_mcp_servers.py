"""MCP servers in the deprecated family ``/v1/tools/mcp/servers``, which knows them by their names (tools-v1 §1.10)."""

from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from holdfast.http.letta_v1.schemas.limits import JsonObject
from holdfast.http.letta_v1.schemas.mcp_servers import (
    Arguments,
    Command,
    Environment,
    HeaderName,
    Headers,
    HttpType,
    ServerName,
    ServerUrl,
    Token,
    infer_form,
)


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class OldMcpStdio(_Lenient):
    server_name: ServerName
    type: Literal["stdio"] | None = None
    command: Annotated[Command, Field(min_length=1)]
    args: Arguments
    env: Environment | None = None


class OldMcpHttp(_Lenient):
    server_name: ServerName
    type: HttpType | None = None
    server_url: ServerUrl
    auth_header: HeaderName | None = None
    auth_token: Token | None = None
    custom_headers: Headers | None = None


OldMcpServer = Annotated[
    Annotated[OldMcpStdio, Tag("stdio")] | Annotated[OldMcpHttp, Tag("http")],
    Discriminator(infer_form),
]


class OldMcpProgram(_Lenient):
    command: Command | None = None
    args: Arguments | None = None
    env: Environment | None = None


class OldMcpChanges(_Lenient):
    """A field that is absent stays as it is. ``token`` is another name of ``auth_token``."""

    server_name: ServerName | None = None
    server_url: ServerUrl | None = None
    auth_header: HeaderName | None = None
    auth_token: Token | None = None
    token: Token | None = None
    custom_headers: Headers | None = None
    stdio_config: OldMcpProgram | None = None


class OldMcpToolRun(_Lenient):
    args: JsonObject = Field(default_factory=dict)


class OldMcpStdioState(Struct, frozen=True, kw_only=True, tag="stdio", tag_field="type"):
    server_name: str
    command: str
    args: tuple[str, ...]
    env: dict[str, str] | None


class _HttpState(Struct, frozen=True, kw_only=True):
    server_name: str
    server_url: str
    auth_header: str | None
    auth_token: str | None
    custom_headers: dict[str, str] | None


class OldMcpSseState(_HttpState, frozen=True, kw_only=True, tag="sse", tag_field="type"):
    pass


class OldMcpStreamableHttpState(
    _HttpState, frozen=True, kw_only=True, tag="streamable_http", tag_field="type"
):
    pass


OldMcpServerState = OldMcpStdioState | OldMcpSseState | OldMcpStreamableHttpState


class McpToolHealth(Struct, frozen=True):
    status: str
    reasons: list[str]


class OldMcpToolResult(Struct, frozen=True):
    result: str
    success: bool


class OldMcpTest(Struct, frozen=True, kw_only=True):
    """``tools``: as the server lists them, each with ``health``."""

    status: Literal["success"] = "success"
    tools: list[dict[str, Any]]
