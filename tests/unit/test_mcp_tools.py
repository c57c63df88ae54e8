"""The tools of an MCP server: how they are stored, and what a refresh changes (tools-v1 §1.5, §1.6)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.values import moment

from holdfast.core import mcp_tools
from holdfast.core.mcp_servers import McpServer, RemoteTool, Transport
from holdfast.core.mcp_tools import ToolChanges, build_tool, check_listing, check_tool, compare
from holdfast.core.tools import Tool, ToolKind

SERVER = McpServer(
    id="mcp_server-1",
    organization_id="org-1",
    name="weather",
    transport=Transport.STREAMABLE_HTTP,
    created_at=moment(1),
    updated_at=moment(1),
)
DESTROYS = {"destructiveHint": True}
HARMLESS = {"destructiveHint": False}
READS = {"readOnlyHint": True}


def remote(name: str, **fields: Any) -> RemoteTool:
    return RemoteTool(name=name, **fields)


def store(*listed: RemoteTool, approve: str = "never") -> list[Tool]:
    return [
        build_tool(
            checked,
            SERVER,
            tool_id=f"tool-{checked.name}",
            now=moment(1),
            approve=approve,
            user_id="user-1",
        )
        for checked in check_listing(listed).tools
    ]


def change(
    stored: list[Tool], *listed: RemoteTool, taken: tuple[str, ...] = (), approve: str = "never"
) -> ToolChanges:
    return compare(SERVER, stored, check_listing(listed), taken, approve)


@pytest.mark.tools(6)
def test_a_tool_has_its_server_in_tags_metadata_and_column() -> None:
    (tool,) = store(
        remote(
            "forecast",
            description="Tomorrow.",
            annotations=READS | {"title": "Forecast", "unknown": 1},
            listing={
                "title": "The forecast",
                "outputSchema": {"type": "object"},
                "icons": ["data:"],
            },
        )
    )

    assert tool.kind is ToolKind.MCP
    assert tool.source_code is None
    assert tool.description == "Tomorrow."
    assert tool.tags == ("mcp:weather",)
    assert tool.mcp_server_id == SERVER.id
    assert tool.default_requires_approval is None
    assert tool.metadata == {
        "mcp": {
            "server_name": "weather",
            "server_id": SERVER.id,
            "annotations": {"title": "Forecast", "readOnlyHint": True},
            "title": "The forecast",
            "output_schema": {"type": "object"},
        }
    }
    assert tool.json_schema["name"] == "forecast"
    assert tool.json_schema["mcp:SCHEMA_STATUS"] == "STRICT_COMPLIANT"
    assert tool.json_schema["mcp:SCHEMA_WARNINGS"] == []


@pytest.mark.parametrize("name", ["x" * 65, "a.b", "a b", "", "ä", "a\n", "a/b", "\ud800"])
def test_a_name_that_models_refuse_is_skipped_with_a_reason(name: str) -> None:
    listing = check_listing([remote(name), remote("a" * 64), remote("A-b_9")])

    assert [tool.name for tool in listing.tools] == ["a" * 64, "A-b_9"]
    (skipped,) = listing.skipped
    assert "name" in skipped.reason
    skipped.name.encode()


def test_of_two_tools_of_one_name_the_first_is_stored() -> None:
    listing = check_listing([remote("a", description="1"), remote("a", description="2")])

    assert [tool.description for tool in listing.tools] == ["1"]
    assert listing.skipped[0].reason == "The server lists a second tool of this name."


@pytest.mark.tools(9)
def test_a_refresh_finds_what_was_added_changed_and_deleted() -> None:
    stored = store(remote("a"), remote("b"), remote("c"))
    changed = remote("b", input_schema={"properties": {"x": {"type": "string"}}})

    changes = change(stored, changed, remote("c"), remote("d"))

    assert [tool.name for tool in changes.deleted] == ["a"]
    assert [tool.id for tool in changes.updated] == ["tool-b"]
    assert [tool.name for tool in changes.added] == ["d"]
    assert changes.skipped == ()


def test_what_callers_have_set_survives_a_refresh() -> None:
    (tool,) = store(remote("a"))
    own = replace(
        tool,
        tags=("mine",),
        return_char_limit=10,
        default_requires_approval=False,
        metadata=tool.metadata | {"mine": 1},
    )

    (updated,) = change([own], remote("a", description="New."), approve="always").updated

    assert updated.tags == ("mine",)
    assert updated.return_char_limit == 10
    assert updated.default_requires_approval is False
    assert updated.metadata["mine"] == 1
    assert updated.description == "New."


def test_a_schema_that_a_caller_changed_is_the_servers_again_after_a_refresh() -> None:
    (tool,) = store(remote("a"))
    changed = replace(tool, json_schema=tool.json_schema | {"description": "Mine."})

    assert change([changed], remote("a")).updated == (tool,)


@pytest.mark.tools(22)
def test_a_name_of_another_tool_is_skipped() -> None:
    changes = change([], remote("a"), taken=("a",))

    assert changes.added == ()
    assert changes.skipped[0].name == "a"


@pytest.mark.tools(8)
def test_a_tool_that_models_refuse_is_not_added_and_not_spoiled() -> None:
    bad = remote("a", input_schema={"properties": {"x": {"type": "array"}}, "required": ["x"]})
    stored = store(remote("a"))

    new, known = change([], bad), change(stored, bad)

    assert (len(new.added), len(known.updated), len(known.deleted)) == (0, 0, 0)
    assert (
        "'items' must be defined" in new.skipped[0].reason
        or "allows empty" in new.skipped[0].reason
    )
    assert known.skipped[0].reason.endswith("The tool stays as it was.")


@pytest.mark.parametrize(
    ("approve", "annotations", "needed"),
    [
        ("never", {}, None),
        ("never", DESTROYS, None),
        ("destructive", {}, True),
        ("destructive", DESTROYS, True),
        ("destructive", HARMLESS, None),
        ("destructive", READS, None),
        ("destructive", READS | DESTROYS, None),
        ("always", READS, True),
    ],
)
def test_the_operator_says_which_tools_need_approval(
    approve: str, annotations: dict[str, Any], needed: bool | None
) -> None:
    (tool,) = store(remote("a", annotations=annotations), approve=approve)

    assert tool.default_requires_approval is needed


def test_a_tool_that_became_destructive_is_named() -> None:
    stored = store(
        remote("a", annotations=READS), remote("b", annotations=DESTROYS), approve="destructive"
    )

    changes = change(
        stored,
        remote("a", annotations=DESTROYS),
        remote("b", annotations=DESTROYS),
        approve="destructive",
    )

    assert changes.guarded == ("a",)
    assert changes.updated[0].default_requires_approval is True


def test_tools_follow_the_new_name_of_their_server() -> None:
    (tool,) = store(remote("a"))

    renamed = mcp_tools.rename_server(
        replace(tool, tags=("mine", "mcp:weather")), "weather", replace(SERVER, name="wetter")
    )

    assert renamed.tags == ("mine", "mcp:wetter")
    assert renamed.metadata["mcp"]["server_name"] == "wetter"
    assert renamed.metadata["mcp"]["server_id"] == SERVER.id


TOOLS = st.lists(
    st.builds(
        remote,
        st.sampled_from("abcdef"),
        description=st.none() | st.sampled_from(["1", "2"]),
        annotations=st.sampled_from([{}, READS, DESTROYS, HARMLESS]),
    ),
    unique_by=lambda tool: tool.name,
)
APPROVE = st.sampled_from(["never", "destructive", "always"])


@given(TOOLS, TOOLS, APPROVE)
def test_after_a_refresh_the_stored_tools_are_those_that_are_listed(
    before: list[RemoteTool], now: list[RemoteTool], approve: str
) -> None:
    stored = store(*before)
    changes = change(stored, *now, approve=approve)

    gone = {tool.name for tool in changes.deleted}
    after = {tool.name: tool for tool in stored if tool.name not in gone}
    after |= {tool.name: tool for tool in changes.updated}
    after |= {
        tool.name: tool
        for tool in store(*now, approve=approve)
        if tool.name in {a.name for a in changes.added}
    }
    assert after.keys() == {tool.name for tool in now}
    for listed in now:
        assert after[listed.name].json_schema == check_tool(listed).json_schema

    again = change(list(after.values()), *now, approve=approve)
    assert again == ToolChanges()
