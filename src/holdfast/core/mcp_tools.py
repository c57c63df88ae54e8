"""The tools of an MCP server as they are stored, and what changed since they were (tools-v1 §1.5, §1.6)."""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, structs

from holdfast.core.mcp_schema import STATUS_KEY, WARNINGS_KEY, check_schema
from holdfast.core.mcp_schema_health import SchemaHealth
from holdfast.core.mcp_servers import McpServer, RemoteTool
from holdfast.core.tool_source.schema import bounds_fault
from holdfast.core.tools import Tool, ToolKind

# Providers accept no longer names.
MAX_NAME_CHARS: Final = 64
MAX_DESCRIPTION_CHARS: Final = 50_000
# Of one server.
MAX_TOOLS: Final = 5_000
# Of a name or text that cannot be used, in the sentence that says so.
MAX_QUOTED_CHARS: Final = 100
# What is told of a result without any content.
EMPTY_RESPONSE: Final = "Empty response from tool"
# What metadata has of a tool of an MCP server.
METADATA_KEY: Final = "mcp"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_ANNOTATIONS: Final = (
    "title",
    "readOnlyHint",
    "destructiveHint",
    "idempotentHint",
    "openWorldHint",
)


class CheckedTool(Struct, frozen=True, kw_only=True):
    """A tool that a server lists, in the form in which it is stored."""

    name: str
    description: str
    json_schema: dict[str, Any]
    health: SchemaHealth
    reasons: tuple[str, ...] = ()
    # Annotations and so on: what metadata says besides the server.
    details: dict[str, Any] = {}
    is_read_only: bool = False
    is_destructive: bool = True


class SkippedTool(Struct, frozen=True):
    name: str
    reason: str


class Listing(Struct, frozen=True):
    """All tools that a server lists: those whose names can be used, whatever their schemas are, and the others."""

    tools: tuple[CheckedTool, ...]
    skipped: tuple[SkippedTool, ...] = ()


class ToolChanges(Struct, frozen=True, kw_only=True):
    """What must be done to the stored tools of a server so that they are those that it lists."""

    deleted: tuple[Tool, ...] = ()
    updated: tuple[Tool, ...] = ()
    added: tuple[CheckedTool, ...] = ()
    skipped: tuple[SkippedTool, ...] = ()
    # Names of updated tools that need approval now and did not before.
    guarded: tuple[str, ...] = ()


def check_listing(listed: Iterable[RemoteTool]) -> Listing:
    tools: dict[str, CheckedTool] = {}
    skipped: list[SkippedTool] = []
    for remote in listed:
        fault = _find_name_fault(remote.name)
        if fault is None and remote.name in tools:
            fault = "The server lists a second tool of this name."
        if fault is None and len(tools) >= MAX_TOOLS:
            fault = f"The server has more than {MAX_TOOLS} tools."
        if fault is None:
            tools[remote.name] = check_tool(remote)
        else:
            skipped.append(SkippedTool(quote_name(remote.name), fault))
    return Listing(tuple(tools.values()), tuple(skipped))


def check_tool(remote: RemoteTool) -> CheckedTool:
    checked = check_schema(remote.input_schema)
    description = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", remote.description or "")
    description = description[:MAX_DESCRIPTION_CHARS]
    return CheckedTool(
        name=remote.name,
        description=description,
        json_schema={
            "name": remote.name,
            "description": description,
            "parameters": checked.parameters,
            STATUS_KEY: checked.health,
            WARNINGS_KEY: list(checked.reasons),
        },
        health=checked.health,
        reasons=checked.reasons,
        details=_read_details(remote),
        is_read_only=remote.is_read_only,
        is_destructive=remote.is_destructive,
    )


def compare(
    server: McpServer,
    stored: Iterable[Tool],
    listing: Listing,
    taken: Collection[str],
    approve: str,
) -> ToolChanges:
    """``taken``: names that tools which are not this server's have."""
    before = {tool.name: tool for tool in stored}
    listed = {tool.name: tool for tool in listing.tools}
    added: list[CheckedTool] = []
    updated: list[Tool] = []
    skipped = list(listing.skipped)
    guarded: list[str] = []
    for name, checked in listed.items():
        reason = _find_skip_reason(checked, taken, is_stored=name in before)
        if reason is not None:
            skipped.append(SkippedTool(name, reason))
        elif name not in before:
            added.append(checked)
        else:
            tool = update_tool(before[name], checked, server, approve)
            if tool != before[name]:
                updated.append(tool)
            if tool.default_requires_approval and not before[name].default_requires_approval:
                guarded.append(name)
    return ToolChanges(
        deleted=tuple(tool for name, tool in before.items() if name not in listed),
        updated=tuple(updated),
        added=tuple(added),
        skipped=tuple(skipped),
        guarded=tuple(guarded),
    )


def build_tool(
    checked: CheckedTool,
    server: McpServer,
    *,
    tool_id: str,
    now: datetime,
    approve: str,
    user_id: str,
) -> Tool:
    return Tool(
        id=tool_id,
        organization_id=server.organization_id,
        name=checked.name,
        description=checked.description,
        json_schema=checked.json_schema,
        created_at=now,
        updated_at=now,
        kind=ToolKind.MCP,
        default_requires_approval=True if needs_approval(checked, approve) else None,
        tags=(name_tag(server.name),),
        metadata={METADATA_KEY: _build_metadata(checked, server)},
        mcp_server_id=server.id,
        created_by_id=user_id,
        last_updated_by_id=user_id,
    )


def update_tool(tool: Tool, checked: CheckedTool, server: McpServer, approve: str) -> Tool:
    """The stored tool as the server lists it now. What callers have set stays, also that it needs no approval."""
    described = tool.json_schema != checked.json_schema
    needs = tool.default_requires_approval is None and needs_approval(checked, approve)
    return structs.replace(
        tool,
        description=checked.description if described else tool.description,
        json_schema=checked.json_schema,
        metadata={**tool.metadata, METADATA_KEY: _build_metadata(checked, server)},
        default_requires_approval=True if needs else tool.default_requires_approval,
    )


def rename_server(tool: Tool, old_name: str, server: McpServer) -> Tool:
    """The tool after its server got another name."""
    tags = (name_tag(server.name) if tag == name_tag(old_name) else tag for tag in tool.tags)
    known = tool.metadata.get(METADATA_KEY)
    known = known if isinstance(known, dict) else {}
    return structs.replace(
        tool,
        tags=tuple(dict.fromkeys(tags)),
        metadata={**tool.metadata, METADATA_KEY: {**known, **_name_server(server)}},
    )


def needs_approval(checked: CheckedTool, approve: str) -> bool:
    return approve == "always" or (approve == "destructive" and checked.is_destructive)


def name_tag(server_name: str) -> str:
    return f"mcp:{server_name}"


def find_fault(checked: CheckedTool) -> str | None:
    """Why the tool cannot be given to a model; None if it can."""
    if checked.health is not SchemaHealth.INVALID:
        return None
    return f"Its schema cannot be used: {checked.reasons[0]}" + (
        f" (and {len(checked.reasons) - 1} more)" if len(checked.reasons) > 1 else ""
    )


def _find_skip_reason(
    checked: CheckedTool, taken: Collection[str], *, is_stored: bool
) -> str | None:
    if checked.name in taken and not is_stored:
        return "There is another tool of this name, which is not this server's."
    fault = find_fault(checked)
    return f"{fault}. The tool stays as it was." if fault and is_stored else fault


def _find_name_fault(name: str) -> str | None:
    if len(name) > MAX_NAME_CHARS:
        return f"Its name has {len(name)} characters, and models accept {MAX_NAME_CHARS}."
    if _NAME.fullmatch(name) is None:
        return "Its name has other characters than ASCII letters, digits, '_' and '-', which models do not accept."
    return None


def quote_name(name: str) -> str:
    """The name in a form that can be stored and shown."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", name[:MAX_QUOTED_CHARS])


def _read_details(remote: RemoteTool) -> dict[str, Any]:
    details: dict[str, Any] = {
        "annotations": {
            key: value[:MAX_DESCRIPTION_CHARS] if isinstance(value, str) else value
            for key in _ANNOTATIONS
            if isinstance(value := remote.annotations.get(key), bool | str)
        }
    }
    title = remote.listing.get("title")
    if isinstance(title, str):
        details["title"] = title[:MAX_DESCRIPTION_CHARS]
    output_schema = remote.listing.get("outputSchema")
    if isinstance(output_schema, dict):
        details["output_schema"] = output_schema
    return {key: value for key, value in details.items() if bounds_fault(value) is None}


def _build_metadata(checked: CheckedTool, server: McpServer) -> dict[str, Any]:
    return {**_name_server(server), **checked.details}


def _name_server(server: McpServer) -> dict[str, Any]:
    return {"server_name": server.name, "server_id": server.id}


def sort_names(tools: Sequence[Tool | CheckedTool]) -> list[str]:
    return sorted(tool.name for tool in tools)
