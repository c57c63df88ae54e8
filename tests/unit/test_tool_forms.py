"""What an update makes of a tool (wire-v1 §2.5)."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.tools import Tool, ToolKind
from holdfast.errors import InvalidArgument, ToolSourceInvalid
from holdfast.usecases import tool_forms
from holdfast.usecases.tool_forms import ToolForm

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = Tool(
    id="tool-1",
    organization_id="org-1",
    name="add",
    description="Adds.",
    json_schema={"name": "add", "description": "Adds.", "parameters": {}},
    source_code='def add():\n    """Adds."""\n',
    created_at=NOW,
    updated_at=NOW,
)
REMOTE = replace(
    TOOL,
    kind=ToolKind.MCP,
    name="an-mcp-tool-with-a-name-that-is-longer-than-48-characters",
    source_code=None,
    json_schema={"name": "x", "mcp:SCHEMA_STATUS": "STRICT_COMPLIANT"},
)


def source(*names: str) -> str:
    return "\n".join(f'def {name}():\n    """Does {name}."""\n' for name in names)


def update(tool: Tool, **fields: Any) -> Tool:
    form = ToolForm(**fields)
    return tool_forms.apply(tool, form, tool_forms.build_new_schema(tool, form))


def named(name: str) -> dict[str, Any]:
    return {"name": name, "description": "New.", "parameters": PARAMETERS}


def test_an_update_without_fields_changes_nothing() -> None:
    assert update(TOOL) == TOOL
    assert update(REMOTE) == REMOTE


def test_a_renamed_tool_remembers_its_function_until_it_gets_another_source() -> None:
    renamed = update(TOOL, json_schema=named("plus"))
    assert (renamed.name, renamed.function) == ("plus", "add")
    again = update(renamed, json_schema=named("sum_up"))
    assert (again.name, again.function) == ("sum_up", "add")
    back = update(again, json_schema=named("add"))
    assert (back.name, back.function) == ("add", None)
    replaced = update(again, source_code=source("sum_up"))
    assert (replaced.name, replaced.function) == ("sum_up", None)


def test_parameters_of_a_renamed_tool_leave_it_its_name() -> None:
    renamed = update(TOOL, json_schema=named("plus"))
    changed = update(renamed, args_json_schema=PARAMETERS)
    assert (changed.name, changed.function, changed.description) == ("plus", "add", "Adds.")
    assert changed.json_schema["parameters"] == PARAMETERS


def test_a_new_source_may_have_other_functions_behind_the_tools_own() -> None:
    changed = update(TOOL, source_code=source("add", "another"))
    assert (changed.name, changed.description) == ("add", "Does add.")
    parameters = update(TOOL, source_code=source("add", "another"), args_json_schema=PARAMETERS)
    assert (parameters.name, parameters.description) == ("add", "Does add.")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"source_code": source("addition")}, "add"),
        ({"source_code": source("add"), "json_schema": named("plus")}, "plus"),
        ({"source_code": "class A:\n    def add(self): ...\n"}, "add"),
        ({"source_code": f"{source('other')}# def add\n"}, "add"),
    ],
)
def test_a_source_without_a_function_of_that_name_is_refused(
    fields: dict[str, Any], name: str
) -> None:
    with pytest.raises(ToolSourceInvalid, match=f"Tool name '{name}' does not match the name"):
        update(TOOL, **fields)


def test_an_error_quotes_only_the_beginning_of_a_long_source() -> None:
    with pytest.raises(ToolSourceInvalid) as caught:
        update(TOOL, source_code="x = 1\n" * 10_000)
    assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize("source_type", ["typescript", "json"])
def test_another_language_is_refused(source_type: str) -> None:
    with pytest.raises(ToolSourceInvalid, match="Python"):
        update(TOOL, source_type=source_type)


def test_the_language_alone_changes_nothing() -> None:
    renamed = update(TOOL, json_schema=named("plus"))
    assert update(renamed, source_type="python") == renamed


@pytest.mark.parametrize("kind", [ToolKind.CORE, ToolKind.FILES, ToolKind.MULTI_AGENT])
@pytest.mark.parametrize("field", ["source_code", "json_schema", "args_json_schema"])
def test_source_and_schema_of_a_built_in_tool_stay(kind: ToolKind, field: str) -> None:
    value = source("add") if field == "source_code" else named("add")
    tool = replace(TOOL, kind=kind)
    with pytest.raises(InvalidArgument, match="'add' is a built-in tool"):
        update(tool, **{field: value})
    assert update(tool, tags=("x",), source_type="python") == replace(tool, tags=("x",))


def test_a_tool_of_an_mcp_server_gets_another_schema_and_keeps_its_name() -> None:
    """What is known about the schema is found out again, whatever the caller says of it."""
    given = named(REMOTE.name) | {"mcp:SCHEMA_STATUS": "STRICT_COMPLIANT", "other": 1}
    changed = update(REMOTE, json_schema=given)
    found = {
        "mcp:SCHEMA_STATUS": "NON_STRICT_ONLY",
        "mcp:SCHEMA_WARNINGS": ["root: 'additionalProperties' not explicitly set"],
    }
    assert (changed.name, changed.description) == (REMOTE.name, "New.")
    assert changed.json_schema == named(REMOTE.name) | found
    nameless = update(REMOTE, json_schema={"description": "New.", "parameters": PARAMETERS})
    assert nameless.json_schema == named(REMOTE.name) | found
    parameters = update(REMOTE, args_json_schema=PARAMETERS)
    assert parameters.json_schema == named(REMOTE.name) | {"description": "Adds."} | found


def test_a_tool_of_an_mcp_server_gets_no_source_and_no_other_name() -> None:
    with pytest.raises(InvalidArgument, match="its source cannot be changed"):
        update(REMOTE, source_code=source(REMOTE.name))
    with pytest.raises(InvalidArgument, match="it cannot be renamed"):
        update(REMOTE, json_schema=named("other"))
