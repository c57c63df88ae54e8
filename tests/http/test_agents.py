"""An agent is made, looked up, changed and deleted (wire-v1 §2.2, §3.2)."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient

from holdfast.adapters.store.search_schema import INDEX_NAMES
from holdfast.core.blocks import DEFAULT_DESCRIPTIONS
from holdfast.core.ids import Kind, id_pattern, is_id

UNKNOWN = "123e4567-e89b-42d3-8456-426614174000"
APPROVED = (
    'def delete_file(path: str) -> str:\n    """Delete a file.\n\n    Args:\n        path: Which.\n    """\n'
    "    return path\n"
)


async def make(client: AsyncClient, **body: object) -> dict[str, Any]:
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


async def change(client: AsyncClient, agent: dict[str, Any], **body: object) -> dict[str, Any]:
    answer = await client.patch(f"/v1/agents/{agent['id']}", json=body)
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


async def get(client: AsyncClient, agent: dict[str, Any], *include: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/agents/{agent['id']}", params={"include": list(include)})
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


async def make_tool(client: AsyncClient, **extra: object) -> dict[str, Any]:
    answer = await client.post("/v1/tools/", json={"source_code": APPROVED, **extra})
    tool: dict[str, Any] = answer.json()
    return tool


async def make_block(client: AsyncClient, label: str, value: str = "x") -> dict[str, Any]:
    answer = await client.post("/v1/blocks/", json={"label": label, "value": value})
    block: dict[str, Any] = answer.json()
    return block


@pytest.fixture
def rows(tmp_path: Path) -> "Rows":
    return Rows(tmp_path / "holdfast.db")


class Rows:
    """How many rows each table has, read past the server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def count(self) -> dict[str, int]:
        with sqlite3.connect(self._path) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for (name,) in tables.fetchall()
                # The index of words is cleaned up later.
                if not name.startswith(("index_removals", *INDEX_NAMES.values()))
            }


async def test_an_empty_body_makes_a_whole_agent(client: AsyncClient) -> None:
    agent = await make(client)
    assert is_id(Kind.AGENT, agent["id"])
    assert re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", agent["name"])
    assert agent["agent_type"] == "letta_v1_agent"
    assert agent["model"] == agent["llm_config"]["handle"] == "openai/gpt-x"
    assert "<base_instructions>" in agent["system"]
    assert agent["timezone"] == "UTC"
    assert agent["compaction_settings"]["mode"] == "sliding_window"
    assert (agent["max_files_open"], agent["per_file_view_window_char_limit"]) == (10, 25_000)
    assert agent["embedding"] is agent["embedding_config"] is agent["last_stop_reason"] is None
    assert agent["memory"] == {
        "blocks": [],
        "file_blocks": [],
        "agent_type": "letta_v1_agent",
        "git_enabled": False,
        "prompt_template": "",
    }
    assert [tool["name"] for tool in agent["tools"]] == [
        "conversation_search",
        "memory_insert",
        "memory_replace",
    ]


async def test_a_new_agent_has_said_nothing_but_its_system_message(client: AsyncClient) -> None:
    agent = await make(client, memory_blocks=[{"label": "human", "value": "Ann"}])
    history = (await client.get(f"/v1/agents/{agent['id']}/messages", params={"limit": 1})).json()
    assert [message["id"] for message in history] == agent["message_ids"]
    text = history[0]["content"]
    assert "<human>" in text
    assert "\nAnn\n" in text
    assert f"- AGENT_ID: {agent['id']}" in text
    assert "- CONVERSATION_ID: default" in text
    assert re.search(
        r"last recompiled: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [AP]M UTC\+0000$", text, re.MULTILINE
    )
    assert "- 0 previous messages" in text


async def test_everything_that_was_sent_comes_back(client: AsyncClient) -> None:
    body = {
        "name": "Zoë's agent-2_x",
        "description": "d",
        "metadata": {"deep": [1, {"a": None}]},
        "system": "Be brief. {CORE_MEMORY} Bye.",
        "model": "anthropic/claude-x",
        "timezone": "Europe/Rome",
        "message_buffer_autoclear": True,
        "hidden": True,
        "project_id": "p1",
        "template_id": "t1",
        "base_template_id": "b1",
        "max_files_open": 2,
        "per_file_view_window_char_limit": 99,
        "context_window_limit": 40_000,
    }
    agent = await make(client, **body)
    window = body.pop("context_window_limit")
    assert {key: agent[key] for key in body} == body
    assert agent["llm_config"]["context_window"] == window
    assert await get(client, agent) == agent | {"tools": []}


async def test_unknown_fields_are_ignored(client: AsyncClient) -> None:
    agent = await make(client, name="a", nonsense=1, from_template="x", embedding_chunk_size=3)
    assert "nonsense" not in agent


async def test_blocks_are_made_and_attached(client: AsyncClient) -> None:
    shared = await make_block(client, "shared/notes")
    agent = await make(
        client,
        memory_blocks=[
            {"label": "human", "value": "Ann"},
            {"label": "persona", "value": "kind", "description": "mine", "read_only": True},
        ],
        block_ids=[shared["id"]],
    )
    labels = [block["label"] for block in agent["blocks"]]
    assert labels == ["human", "persona", "shared/notes"]
    human, persona, _ = agent["blocks"]
    assert human["description"] == DEFAULT_DESCRIPTIONS["human"]
    assert (persona["description"], persona["read_only"]) == ("mine", True)
    assert agent["memory"]["blocks"] == agent["blocks"]


async def test_tools_come_by_name_and_by_id_each_once(client: AsyncClient) -> None:
    tool = await make_tool(client)
    agent = await make(
        client, tools=["delete_file", "memory_insert"], tool_ids=[tool["id"], tool["id"]]
    )
    assert [item["name"] for item in agent["tools"]] == [
        "conversation_search",
        "memory_insert",
        "memory_replace",
        "delete_file",
    ]


async def test_base_tools_can_be_left_out(client: AsyncClient) -> None:
    assert (await make(client, include_base_tools=False))["tools"] == []


async def test_a_tool_that_wants_approval_brings_its_rule(client: AsyncClient) -> None:
    tool = await make_tool(client, default_requires_approval=True)
    agent = await make(client, tool_ids=[tool["id"]])
    rule = {"type": "requires_approval", "tool_name": "delete_file", "prompt_template": None}
    assert agent["tool_rules"] == [rule]
    sent = await make(client, tool_ids=[tool["id"]], tool_rules=[rule])
    assert sent["tool_rules"] == [rule]


async def test_rules_of_every_kind_come_back(client: AsyncClient) -> None:
    rules: list[dict[str, Any]] = [
        {"type": "run_first", "tool_name": "a", "args": {"x": 1}},
        {
            "type": "constrain_child_tools",
            "tool_name": "a",
            "children": ["b"],
            "child_arg_nodes": [{"name": "b", "args": {"y": 2}}],
        },
        {"type": "parent_last_tool", "tool_name": "a", "children": ["b"]},
        {
            "type": "conditional",
            "tool_name": "a",
            "child_output_mapping": {"1": "b"},
            "default_child": "c",
            "require_output_mapping": True,
        },
        {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 2},
        {"type": "continue_loop", "tool_name": "a"},
        {"type": "exit_loop", "tool_name": "a"},
        {"type": "required_before_exit", "tool_name": "a"},
        {"type": "requires_approval", "tool_name": "a"},
    ]
    agent = await make(client, tool_rules=rules)
    assert agent["tool_rules"] == [{"prompt_template": None, **rule} for rule in rules]


async def test_a_tool_rule_that_is_sent_twice_is_stored_once(client: AsyncClient) -> None:
    first = {"type": "exit_loop", "tool_name": "a", "prompt_template": None}
    other = {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 1}
    more = other | {"max_count_limit": 2}
    agent = await make(client, tool_rules=[first, other, first, more, other])
    full = [rule | {"prompt_template": None} for rule in (first, other, more)]
    assert agent["tool_rules"] == full
    await change(client, agent, tool_rules=[more, more, first])
    after = await get(client, agent)
    assert after["tool_rules"] == [full[2], full[0]]


async def test_secrets_come_back_in_clear_and_twice(client: AsyncClient) -> None:
    agent = await make(client, secrets={"KEY": "v"})
    (secret,) = agent["secrets"]
    assert (secret["agent_id"], secret["key"], secret["value"]) == (agent["id"], "KEY", "v")
    assert re.fullmatch(id_pattern(Kind.AGENT_SECRET), secret["id"])
    assert agent["tool_exec_environment_variables"] == agent["secrets"]
    assert (await get(client, agent, "agent.secrets"))["secrets"] == [secret]
    old = await make(client, tool_exec_environment_variables={"OLD": "w"})
    assert [item["key"] for item in old["secrets"]] == ["OLD"]


async def test_an_embedding_needs_no_configured_provider(client: AsyncClient) -> None:
    agent = await make(client, embedding="elsewhere/embed-1")
    assert agent["embedding"] == agent["embedding_config"]["handle"] == "elsewhere/embed-1"
    assert agent["embedding_config"]["embedding_model"] == "embed-1"


async def test_first_messages_follow_the_system_message(client: AsyncClient) -> None:
    agent = await make(
        client,
        initial_message_sequence=[
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
        ],
    )
    history = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()
    shown = [(item["message_type"], item["content"]) for item in history[1:]]
    assert shown == [("user_message", "hello"), ("assistant_message", "hi")]
    assert agent["message_ids"] == [item["id"] for item in history]


async def test_the_project_may_come_in_a_header(client: AsyncClient) -> None:
    answer = await client.post("/v1/agents/", json={}, headers={"X-Project-Id": "p9"})
    assert answer.json()["project_id"] == "p9"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"name": "no/slash"}, 422, "no/slash"),
        ({"name": ""}, 422, "name"),
        ({"name": "tab\there"}, 422, "name"),
        ({"model": "gpt"}, 400, "The model handle should be in the format provider/model-name"),
        ({"model": "nobody/gpt"}, 404, "NOT_FOUND: Handle nobody/gpt not found, must be one of []"),
        ({"timezone": "Mars/Olympus"}, 422, "Mars/Olympus"),
        ({"timezone": "Europe"}, 422, "Europe"),
        ({"timezone": "../etc/passwd"}, 422, "passwd"),
        ({"tools": ["nothing_like_this"]}, 404, "nothing_like_this"),
        ({"tool_ids": [f"tool-{UNKNOWN}"]}, 404, f"tool-{UNKNOWN}"),
        ({"block_ids": [f"block-{UNKNOWN}"]}, 404, f"block-{UNKNOWN}"),
        ({"tool_rules": [{"type": "run_last", "tool_name": "a"}]}, 422, "run_first"),
        ({"tool_rules": [{"type": "parent_last_tool", "tool_name": "a"}]}, 422, "children"),
        (
            {"tool_rules": [{"type": "conditional", "tool_name": "a", "child_output_mapping": {}}]},
            422,
            "child_output_mapping",
        ),
        ({"context_window_limit": 0}, 422, "context_window_limit"),
        ({"memory_blocks": [{"label": "a b", "value": ""}]}, 422, "label"),
        ({"memory_blocks": [{"label": "a", "value": "12", "limit": 1}]}, 422, "limit"),
        ({"agent_type": "robot"}, 422, "agent_type"),
        ({"secrets": {"A=B": "c"}}, 422, "A=B"),
        ({"tool_ids": [f"tool-{UNKNOWN}"] * 1_001}, 422, "tool_ids"),
        ({"initial_message_sequence": [{"role": "user", "content": ""}]}, 400, "empty"),
        (
            {"memory_blocks": [{"label": "a", "value": "1"}, {"label": "a", "value": "2"}]},
            409,
            "label a",
        ),
    ],
)
async def test_a_bad_agent_is_refused_and_nothing_is_kept(
    client: AsyncClient, rows: Rows, body: dict[str, object], status: int, said: str
) -> None:
    await make(client)
    before = rows.count()
    answer = await client.post("/v1/agents/", json={"secrets": {"a": "b"}, "tags": ["t"]} | body)
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert rows.count() == before


async def test_relations_are_empty_unless_they_are_named(client: AsyncClient) -> None:
    agent = await make(
        client,
        tags=["b", "a", "a"],
        secrets={"K": "v"},
        memory_blocks=[{"label": "human", "value": ""}],
    )
    relations = ("tools", "blocks", "tags", "secrets", "sources", "identities")
    bare = await get(client, agent)
    assert [bare[name] for name in relations] == [[]] * 6
    assert bare["memory"]["blocks"] == []
    assert bare["pending_approval"] is None
    full = await get(
        client, agent, *(f"agent.{name}" for name in relations), "agent.pending_approval"
    )
    assert full == agent
    assert full["tags"] == ["a", "b"]


@pytest.mark.parametrize("relation", ["tools", "blocks", "tags", "secrets"])
async def test_each_relation_comes_alone(client: AsyncClient, relation: str) -> None:
    agent = await make(
        client, tags=["a"], secrets={"K": "v"}, memory_blocks=[{"label": "human", "value": ""}]
    )
    shown = await get(client, agent, f"agent.{relation}")
    named = ("tools", "blocks", "tags", "secrets")
    assert [name for name in named if shown[name]] == [relation]


async def test_the_old_way_to_include_still_works(client: AsyncClient) -> None:
    agent = await make(client, tags=["a"], memory_blocks=[{"label": "human", "value": ""}])
    answer = await client.get(
        f"/v1/agents/{agent['id']}", params={"include_relationships": ["memory", "tags"]}
    )
    shown = answer.json()
    assert (shown["tags"], len(shown["memory"]["blocks"]), shown["tools"]) == (["a"], 1, [])


async def test_an_unknown_relation_is_refused(client: AsyncClient) -> None:
    agent = await make(client)
    answer = await client.get(f"/v1/agents/{agent['id']}", params={"include": "agent.friends"})
    assert answer.status_code == 422


async def test_an_agent_that_is_not_there_is_not_found(client: AsyncClient) -> None:
    path = f"/v1/agents/agent-{UNKNOWN}"
    for method, tail, body in (
        ("GET", "", None),
        ("PATCH", "", {}),
        ("DELETE", "", None),
        ("POST", "/recompile", None),
        ("GET", "/context", None),
        ("PATCH", "/reset-messages", {}),
        ("GET", "/tools", None),
        ("PATCH", f"/tools/attach/tool-{UNKNOWN}", None),
        ("PATCH", "/tools/approval/x", {"requires_approval": True}),
        ("GET", "/core-memory", None),
        ("GET", "/core-memory/blocks", None),
        ("PATCH", f"/core-memory/blocks/attach/block-{UNKNOWN}", None),
    ):
        answer = await client.request(method, path + tail, json=body)
        assert answer.status_code == 404, (method, tail)
        assert answer.json() == {"detail": f"Agent with ID agent-{UNKNOWN} not found"}


async def test_a_malformed_id_is_refused_with_an_example(client: AsyncClient) -> None:
    answer = await client.get("/v1/agents/nope")
    assert answer.status_code == 422
    assert "String should match pattern 'agent-{uuid4}'" in answer.json()["detail"]
    assert answer.json()["examples"] == [f"agent-{UNKNOWN}"]


async def test_a_change_sets_what_is_given_and_nothing_else(client: AsyncClient) -> None:
    agent = await make(client, description="old", metadata={"a": 1}, tags=["t"], secrets={"K": "v"})
    after = await change(client, agent, name="New name", hidden=True, timezone="Asia/Tokyo")
    different = {key for key in agent if agent[key] != after[key]}
    assert different == {"name", "hidden", "timezone", "updated_at"}
    assert await get(client, agent, "agent.tools", "agent.tags", "agent.secrets") == after


async def test_null_changes_nothing(client: AsyncClient) -> None:
    agent = await make(client, description="old", tags=["t"], system="s")
    after = await change(
        client, agent, description=None, tags=None, system=None, tool_rules=None, hidden=None
    )
    assert after == agent | {"updated_at": after["updated_at"]}


async def test_lists_replace_the_whole_relation(client: AsyncClient) -> None:
    tool = await make_tool(client, default_requires_approval=True)
    block = await make_block(client, "notes")
    agent = await make(
        client,
        tags=["a", "b"],
        secrets={"K": "v", "L": "w"},
        memory_blocks=[{"label": "human", "value": ""}],
    )
    after = await change(
        client,
        agent,
        tags=["c"],
        tool_ids=[tool["id"]],
        block_ids=[block["id"]],
        secrets={"L": "x"},
    )
    assert after["tags"] == ["c"]
    assert [item["name"] for item in after["tools"]] == ["delete_file"]
    assert [item["label"] for item in after["blocks"]] == ["notes"]
    kept = next(item for item in agent["secrets"] if item["key"] == "L")
    assert after["secrets"] == [kept | {"value": "x"}]
    emptied = await change(client, agent, tags=[], tool_ids=[], block_ids=[], secrets={})
    assert [emptied[key] for key in ("tags", "tools", "blocks", "secrets")] == [[]] * 4


async def test_a_tool_that_an_update_adds_brings_its_rule(client: AsyncClient) -> None:
    tool = await make_tool(client, default_requires_approval=True)
    agent = await make(client)
    rule = {"type": "requires_approval", "tool_name": "delete_file", "prompt_template": None}
    after = await change(client, agent, tool_ids=[tool["id"]])
    assert after["tool_rules"] == [rule]
    # A rule that was taken away does not come back with the same tools.
    await change(client, agent, tool_rules=[])
    assert (await change(client, agent, tool_ids=[tool["id"]]))["tool_rules"] == []


async def test_a_block_may_take_the_place_of_one_with_its_label(client: AsyncClient) -> None:
    agent = await make(client, memory_blocks=[{"label": "human", "value": "old"}])
    block = await make_block(client, "human", "new")
    after = await change(client, agent, block_ids=[block["id"]])
    assert [item["value"] for item in after["blocks"]] == ["new"]


async def test_a_new_prompt_does_not_rewrite_the_stored_message(client: AsyncClient) -> None:
    agent = await make(client)
    await change(client, agent, system="Speak like a pirate.")
    (message,) = (await client.get(f"/v1/agents/{agent['id']}/messages")).json()
    assert "pirate" not in message["content"]


async def test_a_new_model_brings_its_own_defaults(client: AsyncClient) -> None:
    agent = await make(client, parallel_tool_calls=True)
    assert agent["llm_config"]["parallel_tool_calls"] is True
    after = await change(client, agent, model="anthropic/claude-x")
    assert after["model"] == "anthropic/claude-x"
    assert after["model_settings"]["provider_type"] == "anthropic"
    assert after["llm_config"]["parallel_tool_calls"] is False
    assert after["compaction_settings"]["model"] == "anthropic/claude-haiku-4-5"


async def test_compaction_settings_are_merged_field_by_field(client: AsyncClient) -> None:
    agent = await make(client, compaction_settings={"clip_chars": 9, "prompt": "mine"})
    assert agent["compaction_settings"]["prompt"] == "mine"
    after = await change(client, agent, compaction_settings={"mode": "all"})
    assert after["compaction_settings"]["clip_chars"] == 9
    assert after["compaction_settings"]["mode"] == "all"
    assert after["compaction_settings"]["prompt"] not in ("mine", None)


async def test_what_a_run_left_behind_can_be_corrected(client: AsyncClient) -> None:
    agent = await make(client)
    after = await change(client, agent, last_stop_reason="end_turn", last_run_duration_ms=5)
    assert (after["last_stop_reason"], after["last_run_duration_ms"]) == ("end_turn", 5)
    assert (await get(client, agent))["last_stop_reason"] == "end_turn"
    assert after["last_run_completion"] is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "a/b"}, 422),
        ({"timezone": "Nowhere"}, 422),
        ({"secrets": {"": "x"}}, 422),
        ({"model": "nobody/x"}, 404),
        ({"tool_ids": [f"tool-{UNKNOWN}"]}, 404),
        ({"block_ids": [f"block-{UNKNOWN}"]}, 404),
        ({"tool_rules": [{"type": "max_count_per_step", "tool_name": "a"}]}, 422),
        ({"last_stop_reason": "bored"}, 422),
        ({"message_ids": []}, 400),
        ({"message_ids": [f"message-{UNKNOWN}"]}, 404),
        ({"max_files_open": "many"}, 422),
    ],
)
async def test_a_bad_change_changes_nothing(
    client: AsyncClient, body: dict[str, object], status: int
) -> None:
    agent = await make(client, tags=["a"])
    answer = await client.patch(
        f"/v1/agents/{agent['id']}", json={"tags": ["b"], "description": "new"} | body
    )
    assert answer.status_code == status
    assert await get(client, agent, "agent.tags", "agent.tools") == agent


async def test_the_context_can_be_set_to_rows_that_make_a_history(client: AsyncClient) -> None:
    agent = await make(client, initial_message_sequence=[{"role": "user", "content": "hi"}])
    system, said = agent["message_ids"]
    after = await change(client, agent, message_ids=[system])
    assert after["message_ids"] == [system]
    after = await change(client, agent, message_ids=[system, said])
    assert after["message_ids"] == [system, said]
    path = f"/v1/agents/{agent['id']}"
    other = await make(client)
    for ids in ([said], [system, said, said], [system, *other["message_ids"]]):
        answer = await client.patch(path, json={"message_ids": ids})
        assert answer.status_code == 400
    assert (await get(client, agent))["message_ids"] == [system, said]


async def test_a_deleted_agent_is_gone_with_its_messages_but_not_its_blocks(
    client: AsyncClient, rows: Rows
) -> None:
    await make(client)
    before = rows.count()
    agent = await make(
        client, tags=["t"], secrets={"K": "v"}, memory_blocks=[{"label": "human", "value": "x"}]
    )
    answer = await client.delete(f"/v1/agents/{agent['id']}")
    assert answer.json() == {"message": f"Agent id={agent['id']} successfully deleted"}
    assert (await client.get(f"/v1/agents/{agent['id']}")).status_code == 404
    assert (await client.get(f"/v1/blocks/{agent['blocks'][0]['id']}")).status_code == 200
    assert (await client.delete(f"/v1/blocks/{agent['blocks'][0]['id']}")).status_code == 200
    assert rows.count() == before
