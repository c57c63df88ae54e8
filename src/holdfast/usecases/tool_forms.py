"""The input for creating and updating a tool, and what it makes of a tool. Pure: ``tools`` stores the result."""

from typing import Any

from msgspec import Struct, structs

from holdfast.core import requirements, tool_source
from holdfast.core.mcp_schema import STATUS_KEY, WARNINGS_KEY
from holdfast.core.mcp_schema_health import check_health
from holdfast.core.tool_source import ToolSchema
from holdfast.core.tools import Tool, ToolKind
from holdfast.errors import InvalidArgument, ToolSourceInvalid

LANGUAGE = "python"

# An error message quotes at most this much of a source.
_MAX_QUOTED_CHARS = 2_000


class ToolForm(Struct, frozen=True, kw_only=True):
    """The input for creating or updating a tool. None leaves a stored value unchanged, or a new one at its default."""

    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    return_char_limit: int | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None
    pip_requirements: list[dict[str, Any]] | None = None
    npm_requirements: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None


# Fields that are copied unchanged from the form to the tool.
_COPIED_FIELDS = (
    "source_code",
    "description",
    "tags",
    "return_char_limit",
    "default_requires_approval",
    "enable_parallel_execution",
    "pip_requirements",
    "npm_requirements",
    "metadata",
)


def check_language(form: ToolForm) -> None:
    if form.source_type not in (None, LANGUAGE):
        raise ToolSourceInvalid(
            f"Tools are written in Python; source_type '{form.source_type}' cannot be run here."
        )


def build_new_schema(tool: Tool, form: ToolForm) -> ToolSchema | None:
    """The schema that an update gives the tool, with its new name if it gets one; None if the schema stays as it is
    (wire-v1 §2.5)."""
    if tool.kind is ToolKind.MCP:
        return _build_remote_schema(tool, form)
    check_language(form)
    _refuse_definition(tool, form)
    if form.json_schema is not None:
        schema = tool_source.check_json_schema(form.json_schema)
        if form.source_code is not None and not tool_source.has_function(
            form.source_code, schema.name
        ):
            raise _wrong_name(schema.name, form.source_code)
        return schema
    if form.args_json_schema is not None:
        return _replace_parameters(tool, form.source_code, form.args_json_schema)
    if form.source_code is None:
        return None
    derived = tool_source.derive_schema_of(form.source_code, tool.name)
    if derived is None:
        raise _wrong_name(tool.name, form.source_code)
    return derived


def apply(tool: Tool, form: ToolForm, schema: ToolSchema | None) -> Tool:
    """The tool as the form changes it. ``schema``: the new one, if it gets one."""
    _refuse_definition(tool, form)
    requirements.parse_pip_requirements(form.pip_requirements)
    requirements.refuse_npm(form.npm_requirements)
    values = {name: getattr(form, name) for name in _COPIED_FIELDS}
    changes = {name: value for name, value in values.items() if value is not None}
    if schema is not None:
        changes = {
            "name": schema.name,
            "description": schema.description,
            "json_schema": schema.as_json_schema() | _describe_health(tool, schema),
            "args_json_schema": form.args_json_schema,
            "function": _find_function(tool, form, schema.name),
        } | changes
    return structs.replace(tool, **changes)


def _replace_parameters(tool: Tool, source: str | None, parameters: dict[str, Any]) -> ToolSchema:
    if source is not None:
        return tool_source.with_parameters(source, parameters, tool.name)
    function = tool.function or tool.name
    schema = tool_source.with_parameters(tool.source_code or "", parameters, function)
    # The name that it got by an update of its schema stays.
    return ToolSchema(tool.name, schema.description, schema.parameters)


def _build_remote_schema(tool: Tool, form: ToolForm) -> ToolSchema | None:
    """The schema of a tool of an MCP server. Its name is the one that the server knows."""
    _refuse_definition(tool, form)
    if form.json_schema is not None:
        if form.json_schema.get("name", tool.name) != tool.name:
            raise InvalidArgument(
                f"'{tool.name}' is a tool of an MCP server, which knows it by this name: it cannot be renamed."
            )
        # Checked under another name: servers may use longer ones.
        given = tool_source.check_json_schema(form.json_schema | {"name": "tool"})
        return ToolSchema(tool.name, given.description, given.parameters)
    if form.args_json_schema is not None:
        parameters = tool_source.check_parameters(form.args_json_schema)
        return ToolSchema(tool.name, tool.description, parameters)
    return None


def _refuse_definition(tool: Tool, form: ToolForm) -> None:
    """Refuse a source or a schema for a tool that has its own."""
    if tool.kind is ToolKind.CUSTOM:
        return
    schemas = (form.json_schema, form.args_json_schema)
    is_remote = tool.kind is ToolKind.MCP
    if form.source_code is None and (is_remote or all(item is None for item in schemas)):
        return
    whose = (
        "a tool of an MCP server: its source cannot be changed."
        if is_remote
        else "a built-in tool: its source and schema cannot be changed."
    )
    raise InvalidArgument(f"'{tool.name}' is {whose} Give your own tool another name.")


def _describe_health(tool: Tool, schema: ToolSchema) -> dict[str, Any]:
    """What is known about the schema of a tool of an MCP server stands beside it (tools-v1 §1.5)."""
    if tool.kind is not ToolKind.MCP:
        return {}
    health, reasons = check_health(schema.parameters)
    return {STATUS_KEY: health, WARNINGS_KEY: list(reasons)}


def _find_function(tool: Tool, form: ToolForm, name: str) -> str | None:
    """The function that runs if it has another name than the tool: a new schema alone renames only the tool."""
    if form.source_code is not None or tool.kind is not ToolKind.CUSTOM:
        return None
    function = tool.function or tool.name
    return None if function == name else function


def _wrong_name(name: str, source: str) -> InvalidArgument:
    return InvalidArgument(
        f"Tool name '{name}' does not match the name in the JSON schema '{name}' or in the source code "
        f"`{source[:_MAX_QUOTED_CHARS]}`"
    )
