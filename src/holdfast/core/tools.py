"""Tools. The toolbox runs them; ``tool_source`` derives their schemas."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from holdfast.core.paging import Page

# V1 once added this parameter to every tool, and some models still give it. It is no tool's own.
HEARTBEAT = "request_heartbeat"

DEFAULT_RETURN_CHARS = 50_000
MAX_RETURN_CHARS = 1_000_000


class ToolKind(StrEnum):
    """The type of a tool, which decides what runs it (wire-v1 §3.1)."""

    CUSTOM = "custom"
    CORE = "letta_core"
    MEMORY = "letta_memory_core"
    SLEEPTIME = "letta_sleeptime_core"
    MULTI_AGENT = "letta_multi_agent_core"
    BUILTIN = "letta_builtin"
    FILES = "letta_files_core"
    MCP = "external_mcp"


class Tool(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    name: str
    description: str
    json_schema: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    kind: ToolKind = ToolKind.CUSTOM
    source_type: str = "python"
    source_code: str | None = None
    # The function of the source that runs; None: the one with the tool's name.
    function: str | None = None
    args_json_schema: dict[str, Any] | None = None
    return_char_limit: int = DEFAULT_RETURN_CHARS
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool = False
    pip_requirements: list[dict[str, Any]] | None = None
    npm_requirements: list[dict[str, Any]] | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    # The MCP server that the tool is called at, for a tool of the kind MCP.
    mcp_server_id: str | None = None
    project_id: str | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


def truncate_output(text: str, limit: int) -> str:
    """Cut a tool's output to the limit, with a note that says so (wire-v1 §7.4)."""
    if len(text) <= limit:
        return text
    return (
        f"{text[:limit]}... [NOTE: function output was truncated since it exceeded the character "
        f"limit ({len(text)} > {limit})]"
    )


class ToolQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of tools. Conditions combine with AND; None or () means any."""

    page: Page
    name: str | None = None
    names: tuple[str, ...] = ()
    tool_ids: tuple[str, ...] = ()
    search: str | None = None
    kinds: tuple[str, ...] = ()
    excluded_kinds: tuple[str, ...] = ()
    only_builtin: bool = False
    agent_id: str | None = None
