"""MCP servers (tools-v1 §1.1, §1.2)."""

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from holdfast.core.mcp_servers import MAX_NAME_CHARS, NAME_PATTERN
from holdfast.http.letta_v1.schemas.limits import MAX_SECRETS, JsonObject

MAX_URL_CHARS: Final = 2_000
MAX_HEADERS: Final = 100
MAX_HEADER_NAME_CHARS: Final = 200
# Some tokens are long, and servers accept no longer headers.
MAX_HEADER_CHARS: Final = 8_000
MAX_COMMAND_CHARS: Final = 4_000
MAX_ARGUMENTS: Final = 1_000
# Of one argument or variable.
MAX_ARGUMENT_CHARS: Final = 100_000


def _check_url(url: str) -> str:
    """The texts are V1's. Which addresses are allowed is decided elsewhere."""
    if not url:
        raise ValueError("server_url cannot be empty")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"server_url must start with 'http://' or 'https://', got: '{url}'")
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise ValueError(f"server_url must have a valid host, got: '{url}'")
    return url


ServerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME_CHARS,
        pattern=NAME_PATTERN,
        description="Unique within the organization.",
    ),
]
ServerUrl = Annotated[
    str,
    Field(max_length=MAX_URL_CHARS, description="http:// or https://"),
    AfterValidator(_check_url),
]
HeaderName = Annotated[
    str, Field(max_length=MAX_HEADER_NAME_CHARS, description="Authorization if not given.")
]
Token = Annotated[
    str,
    Field(
        max_length=MAX_HEADER_CHARS,
        description="Stored encrypted, and shown masked. `{{ NAME | default }}` stands for a secret of the agent.",
    ),
]
Headers = Annotated[
    dict[
        Annotated[str, Field(max_length=MAX_HEADER_NAME_CHARS)],
        Annotated[str, Field(max_length=MAX_HEADER_CHARS)],
    ],
    Field(
        max_length=MAX_HEADERS, description="Values may have placeholders, and are shown masked."
    ),
]
Command = Annotated[str, Field(max_length=MAX_COMMAND_CHARS, description="The program to run.")]
Arguments = Annotated[
    list[Annotated[str, Field(max_length=MAX_ARGUMENT_CHARS)]], Field(max_length=MAX_ARGUMENTS)
]
Environment = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_ARGUMENT_CHARS)]],
    Field(
        max_length=MAX_SECRETS, description="Values may have placeholders, and are shown masked."
    ),
]
HttpType = Literal["sse", "streamable_http"]


class _Strict(BaseModel):
    # Unknown fields are refused (tools-v1).
    model_config = ConfigDict(extra="forbid")


class McpStdioConfig(_Strict):
    mcp_server_type: Literal["stdio"] | None = None
    command: Annotated[Command, Field(min_length=1)]
    args: Arguments
    env: Environment | None = None


class McpHttpConfig(_Strict):
    mcp_server_type: HttpType | None = Field(None, description="streamable_http if not given.")
    server_url: ServerUrl
    auth_header: HeaderName | None = None
    auth_token: Token | None = None
    custom_headers: Headers | None = None


class McpStdioChanges(_Strict):
    """A field that is absent stays as it is, and so do ``command`` and ``args`` if they are null."""

    mcp_server_type: Literal["stdio"] | None = None
    command: Command | None = None
    args: Arguments | None = None
    env: Environment | None = None


class McpHttpChanges(_Strict):
    """A field that is absent stays as it is, and so does ``server_url`` if it is null. Null clears the others."""

    mcp_server_type: HttpType | None = None
    server_url: ServerUrl | None = None
    auth_header: HeaderName | None = None
    auth_token: Token | None = None
    custom_headers: Headers | None = None


def infer_form(value: Any) -> str:
    """Which of the forms this is: what it says, or what its fields show."""
    if not isinstance(value, dict):
        return "http"
    given = value.get("mcp_server_type", value.get("type"))
    if given is None:
        return "stdio" if {"command", "args", "env"} & value.keys() else "http"
    return {"sse": "http", "streamable_http": "http"}.get(str(given), str(given))


McpConfig = Annotated[
    Annotated[McpStdioConfig, Tag("stdio")] | Annotated[McpHttpConfig, Tag("http")],
    Discriminator(infer_form),
]
McpConfigChanges = Annotated[
    Annotated[McpStdioChanges, Tag("stdio")] | Annotated[McpHttpChanges, Tag("http")],
    Discriminator(infer_form),
]


class McpServerCreate(_Strict):
    server_name: ServerName
    config: McpConfig


class McpServerUpdate(_Strict):
    server_name: ServerName | None = None
    config: McpConfigChanges


class McpToolRun(_Strict):
    args: JsonObject = Field(default_factory=dict)


class McpStdioServer(Struct, frozen=True, kw_only=True, tag="stdio", tag_field="mcp_server_type"):
    """Secrets are masked."""

    id: str
    server_name: str
    command: str
    args: tuple[str, ...]
    env: dict[str, str] | None
    # Not in V1, as below: it is in the operator's file, and cannot be changed over the API.
    is_configured: bool


class _HttpServer(Struct, frozen=True, kw_only=True):
    id: str
    server_name: str
    server_url: str
    auth_header: str | None
    auth_token: str | None
    custom_headers: dict[str, str] | None
    is_configured: bool


class McpSseServer(_HttpServer, frozen=True, kw_only=True, tag="sse", tag_field="mcp_server_type"):
    """Secrets are masked."""


class McpStreamableHttpServer(
    _HttpServer, frozen=True, kw_only=True, tag="streamable_http", tag_field="mcp_server_type"
):
    """Secrets are masked."""


McpServerState = McpStdioServer | McpSseServer | McpStreamableHttpServer


class SkippedTool(Struct, frozen=True):
    name: str
    reason: str


class McpRefresh(Struct, frozen=True, kw_only=True):
    """The names of the tools. Not in V1: ``skipped``, those that cannot be used, if there are any."""

    deleted: list[str]
    updated: list[str]
    added: list[str]
    skipped: list[SkippedTool] | UnsetType = UNSET
