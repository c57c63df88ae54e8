"""Agents (wire-v1 §2.2, §3.2)."""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from letta_client import Letta, NotFoundError
from tests.support.client_objects import as_dict, as_dicts
from tests.support.tool_sources import SHOUT, WHISPER

from holdfast.testing import ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow


def names(agents: Any) -> list[str]:
    return [agent.name for agent in agents]


@pytest.mark.wire(2)
def test_an_agent_is_created_with_all_that_it_was_given(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool = make_tool(SHOUT)
    block = client.blocks.create(label="shared", value="Known to all.")

    agent = make_agent(
        name="Ada Lovelace",
        agent_type="letta_v1_agent",
        description="Counts.",
        system="You are {CORE_MEMORY}",
        model="openai/gpt-4o-mini",
        model_settings={"provider_type": "openai", "temperature": 0.2, "max_output_tokens": 99},
        embedding="openai/text-embedding-3-small",
        context_window_limit=32_000,
        memory_blocks=[{"label": "human", "value": "Charles"}, {"label": "persona", "value": "I"}],
        block_ids=[block.id],
        tool_ids=[tool.id],
        tool_rules=[{"type": "exit_loop", "tool_name": "shout"}],
        tags=["a", "b"],
        metadata={"colour": "red"},
        timezone="Europe/Rome",
        secrets={"KEY": "value"},
        message_buffer_autoclear=True,
        parallel_tool_calls=True,
    )

    state = as_dict(agent)
    assert state["name"] == "Ada Lovelace"
    assert state["agent_type"] == "letta_v1_agent"
    assert state["description"] == "Counts."
    assert state["system"] == "You are {CORE_MEMORY}"
    assert state["model"] == state["llm_config"]["handle"] == "openai/gpt-4o-mini"
    assert state["llm_config"]["context_window"] == 32_000
    assert state["llm_config"]["parallel_tool_calls"] is True
    assert state["model_settings"]["temperature"] == 0.2
    assert state["model_settings"]["max_output_tokens"] == 99
    assert state["embedding"] == "openai/text-embedding-3-small"
    assert {item["label"] for item in state["blocks"]} == {"human", "persona", "shared"}
    assert {item["label"] for item in state["memory"]["blocks"]} == {"human", "persona", "shared"}
    assert [item["id"] for item in state["tools"]] == [tool.id]
    assert [rule["type"] for rule in state["tool_rules"]] == ["exit_loop"]
    assert sorted(state["tags"]) == ["a", "b"]
    assert state["metadata"] == {"colour": "red"}
    assert state["timezone"] == "Europe/Rome"
    assert [(item["key"], item["value"]) for item in state["secrets"]] == [("KEY", "value")]
    assert state["message_buffer_autoclear"] is True
    assert state["last_stop_reason"] is None
    assert len(state["message_ids"]) == 1
    assert state["created_at"] is not None
    client.blocks.delete(block.id)


def test_an_agent_needs_nothing_but_a_model(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent(include_base_tools=True)

    assert agent.name
    assert agent.timezone == "UTC"
    assert sorted(str(tool.name) for tool in agent.tools) == [
        "conversation_search",
        "memory_insert",
        "memory_replace",
    ]
    settings = as_dict(agent)["model_settings"]
    assert settings["provider_type"] == "openai"


def test_relations_come_only_when_asked_for(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(
        memory_blocks=[{"label": "human", "value": "Charles"}],
        tool_ids=[make_tool(SHOUT).id],
        tags=["a"],
        secrets={"KEY": "value"},
    )

    bare = client.agents.retrieve(agent.id)
    assert (bare.tools, bare.blocks, bare.tags, bare.secrets) == ([], [], [], [])
    assert bare.memory.blocks == []
    with_tools = client.agents.retrieve(agent.id, include=["agent.tools"])
    assert [tool.name for tool in with_tools.tools] == ["shout"]
    assert with_tools.blocks == []
    full = client.agents.retrieve(agent.id, include=["agent.blocks", "agent.tags", "agent.secrets"])
    assert [block.label for block in full.blocks] == ["human"]
    assert [block.label for block in full.memory.blocks] == ["human"]
    assert full.tags == ["a"]
    assert [secret.value for secret in full.secrets or []] == ["value"]
    (listed_one,) = client.agents.list(name=agent.name, include=["agent.tags"]).items
    assert listed_one.tags == ["a"]


def test_agents_are_listed_by_each_filter(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    mark = uuid4().hex
    first = make_agent(name=f"{mark} first", tags=[mark, "red"], project_id=f"project-{mark}")
    second = make_agent(name=f"{mark} second", tags=[mark, "blue"])
    client.agents.messages.create(second.id, input="Hello?")

    def list_ids(**query: Any) -> list[str]:
        return [agent.id for agent in client.agents.list(**query).items]

    assert list_ids(query_text=mark) == [second.id, first.id]
    assert list_ids(query_text=mark, order="asc") == [first.id, second.id]
    assert list_ids(name=f"{mark} first") == [first.id]
    assert list_ids(name=mark) == []
    assert list_ids(tags=[mark]) == [second.id, first.id]
    assert list_ids(tags=["red", "blue"], query_text=mark) == [second.id, first.id]
    assert list_ids(tags=[mark, "red"], match_all_tags=True) == [first.id]
    assert list_ids(project_id=f"project-{mark}") == [first.id]
    assert list_ids(query_text=mark, last_stop_reason="end_turn") == [second.id]
    assert list_ids(query_text=mark, limit=1) == [second.id]
    assert list_ids(query_text=mark, created_by_id=first.created_by_id) == [second.id, first.id]
    assert list_ids(identity_id="identity-00000000-0000-4000-8000-000000000000") == []
    assert list_ids(query_text=mark, order_by="last_run_completion")[0] == second.id


def test_agents_are_counted(http: httpx.Client, make_agent: "MakeAgent") -> None:
    mark = uuid4().hex
    for _ in range(3):
        make_agent(tags=[mark])

    assert http.get("/v1/agents/count", params={"tags": [mark]}).json() == 3


def test_cursors_lead_both_ways(client: Letta, make_agent: "MakeAgent") -> None:
    mark = uuid4().hex
    for number in range(5):
        make_agent(name=f"{mark} {number}")
    newest_first = [f"{mark} {number}" for number in (4, 3, 2, 1, 0)]
    agents = client.agents.list(query_text=mark).items
    assert names(agents) == newest_first

    middle = agents[2].id
    assert names(client.agents.list(query_text=mark, after=middle).items) == newest_first[3:]
    assert names(client.agents.list(query_text=mark, before=middle).items) == newest_first[:2]
    assert names(client.agents.list(query_text=mark, before=middle, limit=1).items) == [
        newest_first[1]
    ]
    upwards = client.agents.list(query_text=mark, order="asc", after=middle).items
    assert names(upwards) == newest_first[1::-1]


def test_an_update_changes_what_is_given_and_nothing_else(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    shout, whisper = make_tool(SHOUT), make_tool(WHISPER)
    agent = make_agent(
        description="Old.",
        tool_ids=[shout.id],
        tags=["a", "b"],
        memory_blocks=[{"label": "human", "value": "Charles"}],
    )

    changed = as_dict(
        client.agents.update(
            agent.id,
            name="Anew",
            tool_ids=[whisper.id],
            tags=["c"],
            parallel_tool_calls=True,
            metadata={"colour": "blue"},
            model="anthropic/claude-sonnet-4-5",
        )
    )

    assert changed["name"] == "Anew"
    assert changed["description"] == "Old."
    assert [tool["name"] for tool in changed["tools"]] == ["whisper"]
    assert changed["tags"] == ["c"]
    assert changed["llm_config"]["parallel_tool_calls"] is True
    assert changed["model"] == "anthropic/claude-sonnet-4-5"
    assert changed["metadata"] == {"colour": "blue"}
    # All relations are returned, also those that were not changed.
    assert [block["label"] for block in changed["blocks"]] == ["human"]
    assert changed["message_ids"] == agent.message_ids
    fetched = as_dict(client.agents.retrieve(agent.id, include=["agent.tools", "agent.tags"]))
    assert [tool["name"] for tool in fetched["tools"]] == ["whisper"]
    assert fetched["tags"] == ["c"]


def test_a_legacy_llm_config_is_understood(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()

    changed = client.agents.update(
        agent.id,
        llm_config={
            "handle": "anthropic/claude-sonnet-4-5",
            "model": "claude-sonnet-4-5",
            "model_endpoint_type": "anthropic",
            "context_window": 50_000,
        },
    )

    assert changed.model == "anthropic/claude-sonnet-4-5"
    assert changed.llm_config.context_window == 50_000


@pytest.mark.wire(117)
def test_a_deleted_agent_is_gone(
    http: httpx.Client, client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()

    deleted = http.delete(f"/v1/agents/{agent.id}")

    assert deleted.json() == {"message": f"Agent id={agent.id} successfully deleted"}
    with pytest.raises(NotFoundError):
        client.agents.retrieve(agent.id)
    with pytest.raises(NotFoundError):
        client.agents.delete(agent.id)
    assert agent.id not in [item.id for item in client.agents.list().items]


def test_an_initial_message_sequence_follows_the_system_message(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(
        initial_message_sequence=[
            {"role": "user", "content": "We have met."},
            {"role": "assistant", "content": "So we have."},
        ]
    )

    rows = as_dicts(client.agents.messages.list(agent.id).items)
    assert [row["message_type"] for row in rows] == [
        "system_message",
        "user_message",
        "assistant_message",
    ]
    assert agent.message_ids == [row["id"] for row in rows]


def test_the_context_is_reported_part_by_part(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
) -> None:
    agent = make_agent(
        memory_blocks=[{"label": "human", "value": "Charles"}], tool_ids=[make_tool(SHOUT).id]
    )
    client.agents.messages.create(agent.id, input="Hello?")

    context = http.get(f"/v1/agents/{agent.id}/context").json()

    assert context["num_messages"] == 3
    assert "Charles" in context["core_memory"]
    assert [item["function"]["name"] for item in context["functions_definitions"]] == ["shout"]
    assert context["context_window_size_max"] == 128_000
    parts = [context[key] for key in context if key.startswith("num_tokens_")]
    assert context["context_window_size_current"] == sum(parts)
    assert [row["role"] for row in context["messages"]] == ["user", "assistant"]


def test_recompiling_shows_and_stores_the_system_message(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(system="You are old.")
    client.agents.update(agent.id, system="You are new.")

    shown_only = client.agents.recompile(agent.id, dry_run=True)
    (stored,) = as_dicts(client.agents.messages.list(agent.id).items)
    assert "You are new." in shown_only
    assert "You are old." in stored["content"]

    client.agents.recompile(agent.id)
    (recompiled,) = as_dicts(client.agents.messages.list(agent.id).items)
    assert recompiled["id"] == stored["id"]
    assert "You are new." in recompiled["content"]
    assert f"- AGENT_ID: {agent.id}" in recompiled["content"]
    assert "- CONVERSATION_ID: default" in recompiled["content"]
    assert "- System prompt last recompiled:" in recompiled["content"]


@pytest.mark.wire(3)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("openai", "gpt-4o-mini"),
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("google_ai", "gemini-2.5-pro"),
        ("google_vertex", "gemini-2.5-flash"),
        ("azure", "gpt-4o"),
        ("together", "Qwen/Qwen2.5-72B-Instruct-Turbo"),
    ],
)
def test_an_update_takes_a_whole_legacy_config(
    client: Letta, make_agent: "MakeAgent", kind: str, name: str
) -> None:
    agent = make_agent(model="openai/gpt-4o-mini")
    config = {
        "model": name,
        "model_endpoint_type": kind,
        "model_endpoint": None,
        "model_wrapper": None,
        "context_window": 64_000,
        "put_inner_thoughts_in_kwargs": False,
        "handle": f"{kind}/{name}",
        "temperature": 1.0,
        "max_tokens": 4096,
        "enable_reasoner": False,
        "max_reasoning_tokens": 0,
    }

    updated = client.agents.update(agent.id, llm_config=config)  # type: ignore[arg-type]  # the SDK's own type is as wide

    assert updated.llm_config.model == name
    assert updated.llm_config.context_window == 64_000
    assert client.agents.retrieve(agent.id).model == f"{kind}/{name}"


def test_a_model_whose_provider_is_not_configured_is_reported_when_a_message_is_sent(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(model="openai/gpt-4o-mini")
    config = {"model": "gpt-4o", "model_endpoint_type": "azure", "context_window": 64_000}
    client.agents.update(agent.id, llm_config=config)  # type: ignore[arg-type]  # see above

    with pytest.raises(NotFoundError, match="Handle azure/gpt-4o not found"):
        client.agents.messages.create(agent.id, input="Hello?")

    assert client.runs.list(agent_id=agent.id).items == []
