"""The default tools of every agent: memory and conversation search (wire-v1 §7.3)."""

from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow


@pytest.fixture
def rememberer(make_agent: "MakeAgent") -> AgentState:
    return make_agent(
        include_base_tools=True,
        memory_blocks=[
            {"label": "human", "value": "Likes tea.\nLives in Rome."},
            {"label": "law", "value": "Do no harm.", "read_only": True},
        ],
    )


def result_of(
    client: Letta, provider: ScriptedProvider, agent: AgentState, name: str, **arguments: Any
) -> tuple[str, str]:
    """The tool's return for a call of the model."""
    provider.script(Answer(ToolCall(name, arguments)), "Done.")
    reply = client.agents.messages.create(agent.id, input="Use your memory")
    (row,) = [row for row in as_dicts(reply.messages) if "tool_return" in row]
    return row["status"], row["tool_return"]


def test_a_text_in_memory_is_replaced_and_seen_from_the_next_message_on(
    client: Letta, provider: ScriptedProvider, rememberer: AgentState, model: str
) -> None:
    status, value = result_of(
        client,
        provider,
        rememberer,
        "memory_replace",
        label="human",
        old_string="tea",
        new_string="coffee",
    )

    assert status == "success"
    assert "Likes coffee." in value
    block = client.agents.blocks.retrieve("human", agent_id=rememberer.id)
    assert block.value == "Likes coffee.\nLives in Rome."
    client.agents.messages.create(rememberer.id, input="What do I like?")
    assert "Likes coffee." in str(provider.requests[-1].body)


def test_a_line_is_inserted_into_memory(
    client: Letta, provider: ScriptedProvider, rememberer: AgentState, model: str
) -> None:
    result_of(client, provider, rememberer, "memory_insert", label="human", new_string="Has a cat.")
    result_of(
        client,
        provider,
        rememberer,
        "memory_insert",
        label="human",
        new_string="Is called Ada.",
        insert_line=0,
    )

    block = client.agents.blocks.retrieve("human", agent_id=rememberer.id)
    assert block.value.splitlines() == [
        "Is called Ada.",
        "Likes tea.",
        "Lives in Rome.",
        "Has a cat.",
    ]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory_replace", {"label": "human", "old_string": "wine", "new_string": "x"}),
        ("memory_replace", {"label": "human", "old_string": "Li", "new_string": "x"}),
        ("memory_replace", {"label": "nothing", "old_string": "a", "new_string": "b"}),
        ("memory_insert", {"label": "human", "new_string": "x", "insert_line": 99}),
        ("memory_insert", {"label": "law", "new_string": "Except on Sundays."}),
        ("memory_insert", {"label": "human"}),
    ],
    ids=["no match", "two matches", "no such block", "no such line", "read only", "no text"],
)
def test_an_edit_that_cannot_be_made_is_an_error_and_changes_nothing(
    client: Letta,
    provider: ScriptedProvider,
    rememberer: AgentState,
    name: str,
    arguments: dict[str, Any],
) -> None:
    status, _ = result_of(client, provider, rememberer, name, **arguments)

    assert status == "error"
    blocks = {block.label: block.value for block in client.agents.blocks.list(rememberer.id)}
    assert blocks == {"human": "Likes tea.\nLives in Rome.", "law": "Do no harm."}


def test_what_was_said_is_found_again(
    client: Letta, provider: ScriptedProvider, rememberer: AgentState, model: str
) -> None:
    provider.script("Noted.")
    client.agents.messages.create(rememberer.id, input="The password is swordfish.")
    client.agents.messages.reset(rememberer.id, add_default_initial_messages=False)

    found = result_of(client, provider, rememberer, "conversation_search", query="swordfish")
    nothing = result_of(client, provider, rememberer, "conversation_search", query="halibut")

    assert found[0] == nothing[0] == "success"
    assert "The password is swordfish." in found[1]
    assert "swordfish" not in nothing[1]


@pytest.fixture
def gardener(make_agent: "MakeAgent") -> AgentState:
    return make_agent(
        tools=["memory", "memory_apply_patch"],
        memory_blocks=[
            {"label": "human", "value": "Likes tea.\nLives in Rome."},
            {"label": "law", "value": "Do no harm.", "read_only": True},
        ],
    )


def test_blocks_come_change_and_go_by_one_tool(
    client: Letta, provider: ScriptedProvider, gardener: AgentState
) -> None:
    def call_memory_tool(**arguments: Any) -> str:
        status, text = result_of(client, provider, gardener, "memory", **arguments)
        assert status == "success", text
        return text

    def blocks() -> dict[str, str]:
        return {str(b.label): b.value for b in client.agents.blocks.list(gardener.id).items}

    call_memory_tool(
        command="create", path="/memories/plan", file_text="One.", description="What to do."
    )
    call_memory_tool(command="insert", path="/memories/plan", insert_text="Two.")
    call_memory_tool(command="insert", path="/memories/plan", insert_text="Zero.", insert_line=0)
    call_memory_tool(
        command="str_replace", path="/memories/plan", old_string="Two.", new_string="2."
    )
    assert blocks()["plan"] == "Zero.\nOne.\n2."
    call_memory_tool(command="rename", old_path="/memories/plan", new_path="/memories/plan/today")
    call_memory_tool(command="rename", path="/memories/plan/today", description="Only today.")
    block = client.agents.blocks.retrieve("plan/today", agent_id=gardener.id)
    assert (block.value, block.description) == ("Zero.\nOne.\n2.", "Only today.")
    assert "plan" not in blocks()
    call_memory_tool(command="delete", path="/memories/plan/today")
    assert set(blocks()) == {"human", "law"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"command": "create", "path": "/memories/human"}, "already"),
        ({"command": "create", "path": "/memories/no spaces"}, "no path"),
        ({"command": "create"}, "needs 'path'"),
        ({"command": "delete", "path": "/memories/nothing"}, "no memory block"),
        ({"command": "delete", "path": "/memories/law"}, "read-only"),
        ({"command": "rename", "old_path": "/memories/human", "new_path": "law"}, "already"),
        ({"command": "str_replace", "path": "human", "old_string": "milk"}, "not found"),
        ({"command": "burn"}, "no command"),
    ],
)
def test_what_the_memory_tool_cannot_do_it_says_and_changes_nothing(
    client: Letta,
    provider: ScriptedProvider,
    gardener: AgentState,
    arguments: dict[str, Any],
    says: str,
) -> None:
    status, text = result_of(client, provider, gardener, "memory", **arguments)

    assert status == "error"
    assert says in text
    values = sorted(block.value for block in client.agents.blocks.list(gardener.id).items)
    assert values == ["Do no harm.", "Likes tea.\nLives in Rome."]


def test_a_patch_changes_several_places_of_a_block(
    client: Letta, provider: ScriptedProvider, gardener: AgentState
) -> None:
    patch = "@@ -1 +1 @@\n-Likes tea.\n+Likes coffee.\n@@\n Lives in Rome.\n+Works in Rome."

    status, value = result_of(
        client, provider, gardener, "memory_apply_patch", label="human", patch=patch
    )

    assert (status, value) == ("success", "Likes coffee.\nLives in Rome.\nWorks in Rome.")


def test_a_search_keeps_to_its_dates(
    client: Letta, provider: ScriptedProvider, rememberer: AgentState
) -> None:
    def search(**arguments: Any) -> tuple[str, str]:
        return result_of(client, provider, rememberer, "conversation_search", **arguments)

    client.agents.messages.create(rememberer.id, input="The word is swordfish.")
    status, text = search(query="swordfish", start_date="2020-01-01")
    assert (status, "swordfish" in text, "ago" in text) == ("success", True, True)
    assert "No results" in search(query="swordfish", end_date="2020-01-01")[1]
    assert search(query="swordfish", end_date="soon")[0] == "error"


def test_a_conversation_remembers_in_blocks_of_its_own(
    client: Letta, provider: ScriptedProvider, rememberer: AgentState
) -> None:
    conversation = client.conversations.create(
        agent_id=rememberer.id, extra_body={"isolated_block_labels": ["human"]}
    )
    (own,) = as_dict(client.conversations.retrieve(conversation.id))["isolated_block_ids"]
    edit = {"label": "human", "new_string": "Has a dog."}
    provider.script(Answer(ToolCall("memory_insert", edit)), "Done.")
    list(client.conversations.messages.create(conversation.id, input="Remember my dog."))

    assert client.blocks.retrieve(own).value.endswith("Has a dog.")
    shared = client.agents.blocks.retrieve("human", agent_id=rememberer.id)
    assert "dog" not in shared.value
    provider.script("They spoke of a dog.")
    client.conversations.messages.compact(conversation.id)
    list(client.conversations.messages.create(conversation.id, input="And now?"))
    assert "Has a dog." in str(provider.requests[-1].body)
    client.agents.messages.create(rememberer.id, input="And here?")
    assert "Has a dog." not in str(provider.requests[-1].body)
