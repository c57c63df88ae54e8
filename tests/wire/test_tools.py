"""Tools, by themselves and attached to agents (wire-v1 §2.4, §2.5, §3.4)."""

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from letta_client import BadRequestError, Letta, NotFoundError
from tests.support.client_objects import as_dict, as_dicts
from tests.support.tool_sources import ADD, EXPLODE, INTROSPECT, SHOUT, WHISPER

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow


@pytest.mark.wire(2)
def test_a_tool_is_made_from_its_source(client: Letta, make_tool: "MakeTool") -> None:
    tool = as_dict(
        make_tool(ADD, tags=["sums"], return_char_limit=99, default_requires_approval=True)
    )

    assert tool["name"] == "add"
    assert tool["description"] == "Add two numbers."
    assert tool["json_schema"] == {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first number."},
                "b": {"type": "integer", "description": "The second number.", "default": 2},
            },
            "required": ["a"],
        },
    }
    assert tool["tool_type"] == "custom"
    assert tool["source_type"] == "python"
    assert tool["tags"] == ["sums"]
    assert tool["return_char_limit"] == 99
    assert tool["default_requires_approval"] is True
    assert as_dict(client.tools.retrieve(tool["id"])) == tool


@pytest.mark.wire(117)
def test_an_upsert_of_the_same_function_keeps_the_tool(
    client: Letta, make_tool: "MakeTool"
) -> None:
    first = make_tool(ADD)

    again = make_tool(ADD)
    changed = make_tool(ADD.replace("Add two numbers.", "Sum up."))

    assert first.id == again.id == changed.id
    assert changed.description == "Sum up."
    assert len(client.tools.list(name="add").items) == 1
    created = client.tools.create(source_code=ADD)
    assert created.id == first.id


def test_a_new_source_brings_a_new_schema(client: Letta, make_tool: "MakeTool") -> None:
    tool = make_tool(ADD)

    changed = client.tools.update(
        tool.id, source_code=ADD.replace("b: int = 2", "b: float = 2.5").replace("second", "other")
    )

    assert changed.id == tool.id
    assert changed.json_schema is not None
    properties: Any = changed.json_schema["parameters"]
    assert properties["properties"]["b"]["type"] == "number"
    assert properties["properties"]["b"]["description"] == "The other number."


def test_an_update_changes_only_what_is_given(client: Letta, make_tool: "MakeTool") -> None:
    tool = make_tool(ADD, tags=["sums"])

    changed = client.tools.update(tool.id, description="Sum.", metadata={"colour": "red"})

    assert changed.description == "Sum."
    assert changed.tags == ["sums"]
    assert as_dict(changed)["metadata_"]["colour"] == "red"
    assert changed.source_code == tool.source_code


@pytest.mark.wire(117)
def test_a_deleted_tool_is_gone_from_its_agents_too(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool = make_tool(SHOUT)
    agent = make_agent(tool_ids=[tool.id])

    client.tools.delete(tool.id)

    with pytest.raises(NotFoundError):
        client.tools.retrieve(tool.id)
    with pytest.raises(NotFoundError):
        client.tools.delete(tool.id)
    assert client.agents.tools.list(agent.id).items == []


def test_tools_are_listed_by_each_filter(
    client: Letta, http: httpx.Client, make_tool: "MakeTool"
) -> None:
    mark = f"t{uuid4().hex[:12]}"
    one = make_tool(ADD.replace("def add", f"def {mark}_one"))
    two = make_tool(ADD.replace("def add", f"def {mark}_two"))

    def list_names(**query: Any) -> list[str]:
        return [tool.id for tool in client.tools.list(**query).items]

    assert list_names(search=mark) == [two.id, one.id]
    assert list_names(search=mark, order="asc") == [one.id, two.id]
    assert list_names(name=f"{mark}_one") == [one.id]
    assert list_names(names=[f"{mark}_one", f"{mark}_two", "nothing"]) == [two.id, one.id]
    assert list_names(tool_ids=[two.id]) == [two.id]
    assert list_names(search=mark, tool_types=["custom"]) == [two.id, one.id]
    assert list_names(search=mark, exclude_tool_types=["custom"]) == []
    assert list_names(search=mark, limit=1) == [two.id]
    assert list_names(search=mark, after=two.id) == [one.id]
    assert list_names(search=mark, before=one.id) == [two.id]
    builtin = client.tools.list(return_only_letta_tools=True, limit=100).items
    assert {"memory_insert", "conversation_search"} <= {tool.name for tool in builtin}
    assert "custom" not in {tool.tool_type for tool in builtin}
    assert http.get("/v1/tools/count", params={"search": mark}).json() == 2


def test_tools_are_attached_and_detached(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    shout, whisper = make_tool(SHOUT), make_tool(WHISPER, default_requires_approval=True)
    agent = make_agent(tool_ids=[shout.id])

    def list_attached() -> list[str]:
        return sorted(str(tool.name) for tool in client.agents.tools.list(agent.id).items)

    for _ in range(2):
        assert client.agents.tools.attach(whisper.id, agent_id=agent.id) is None
    assert list_attached() == ["shout", "whisper"]
    rules = as_dicts(client.agents.retrieve(agent.id).tool_rules or [])
    assert [(rule["type"], rule["tool_name"]) for rule in rules] == [
        ("requires_approval", "whisper")
    ]
    for _ in range(2):
        assert client.agents.tools.detach(shout.id, agent_id=agent.id) is None
    assert list_attached() == ["whisper"]
    with pytest.raises(NotFoundError):
        client.agents.tools.attach("tool-00000000-0000-4000-8000-000000000000", agent_id=agent.id)


def test_an_attached_tool_is_run_without_the_model(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(tool_ids=[make_tool(ADD).id, make_tool(EXPLODE).id])

    good = client.agents.tools.run("add", agent_id=agent.id, args={"a": 40})
    bad = client.agents.tools.run("explode", agent_id=agent.id, args={"reason": "bang"})

    assert (good.status, good.func_return) == ("success", "42")
    assert (bad.status, bad.func_return) == ("error", None)
    assert "bang" in str(bad.stderr)


def test_a_tool_sees_its_agent_in_a_turn_and_when_it_is_run_by_hand(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(
        name="Ada",
        tags=["sums"],
        tool_ids=[make_tool(INTROSPECT).id],
        memory_blocks=[{"label": "human", "value": "Bob"}],
        secrets={"KEY": "only-in-the-environment"},
        model="openai/gpt-4o",
        include_base_tools=False,
    )
    seen = ["Ada", "Bob", "Bob", ["sums"], ["introspect"], "openai/gpt-4o", False]

    by_hand = client.agents.tools.run("introspect", agent_id=agent.id)
    provider.script(Answer(ToolCall("introspect")), "Done.")
    reply = client.agents.messages.create(agent.id, input="Look at yourself.")

    assert json.loads(str(by_hand.func_return)) == seen
    (returned,) = [item for item in reply.messages if item.message_type == "tool_return_message"]
    assert json.loads(str(returned.tool_return)) == seen


def test_a_source_is_run_without_being_stored(http: httpx.Client, client: Letta) -> None:
    source = ADD.replace("def add", "def never_stored")

    answer = http.post("/v1/tools/run", json={"source_code": source, "args": {"a": 1, "b": 2}})

    assert answer.status_code == 200
    assert answer.json()["message_type"] == "tool_return_message"
    assert (answer.json()["status"], answer.json()["tool_return"]) == ("success", "3")
    assert client.tools.list(name="never_stored").items == []


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def broken(:", id="no Python"),
        pytest.param("x = 1", id="no function"),
        pytest.param("def f(a: int): return a", id="no docstring"),
        pytest.param('def f(a):\n    """Do."""\n', id="no annotation"),
        pytest.param("", id="nothing"),
    ],
)
def test_a_source_that_is_no_tool_is_refused(client: Letta, source: str) -> None:
    before = len(client.tools.list(limit=1000).items)

    for make in (client.tools.create, client.tools.upsert):
        with pytest.raises(BadRequestError):
            make(source_code=source)

    assert len(client.tools.list(limit=1000).items) == before


def test_the_source_is_read_and_never_run_by_the_server(
    client: Letta, make_tool: "MakeTool"
) -> None:
    make_tool("raise SystemExit\n" + ADD)

    assert client.health().status == "ok"


def test_the_built_in_tools_can_be_brought_up_to_date(http: httpx.Client) -> None:
    added = http.post("/v1/tools/add-base-tools")

    assert added.status_code == 200
    assert {"memory_insert", "memory_replace"} <= {tool["name"] for tool in added.json()}


def test_tools_are_found_by_their_words(client: Letta, make_tool: "MakeTool") -> None:
    mark = f"w{uuid4().hex[:12]}"
    source = ADD.replace("def add", "def {}").replace("Add two numbers.", "{}")
    best = make_tool(source.format(f"{mark}_sum", f"Sums up {mark}."), tags=[mark])
    other = make_tool(source.format("adds_up", f"Adds, for once {mark}, many other things up."))

    def search(**query: Any) -> list[str]:
        return [item.tool.id for item in client.tools.search(**query)]

    assert search(query=mark) == [best.id, other.id]
    assert search(query=mark, limit=1) == [best.id]
    assert search(query=mark, tags=[mark]) == [best.id]
    assert search(query=mark, tool_types=["letta_core"]) == []
    assert search(query=f"{mark} {mark}zzz", search_mode="fts") == [best.id, other.id]
    with pytest.raises(BadRequestError, match="search_mode"):
        client.tools.search(query=mark, search_mode="vector")
