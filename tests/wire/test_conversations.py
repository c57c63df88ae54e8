"""Conversations as the official client sees them (wire-v1 §2.7, §7.11)."""

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import ConflictError, Letta, NotFoundError
from tests.support.client_objects import as_dict, as_dicts, kinds, message_texts

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow


def list_texts(client: Letta, conversation_id: str, **query: str) -> list[str]:
    rows = as_dicts(client.conversations.messages.list(conversation_id, order="asc", **query))  # type: ignore[arg-type]  # plain strings
    return [row["content"] for row in rows if row["message_type"] != "system_message"]


def test_a_conversation_lives_beside_the_agents_own_thread(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    made = client.conversations.create(agent_id=agent.id, summary="Trains")
    provider.script("To one.", "To two.")
    stream = list(client.conversations.messages.create(made.id, input="One"))
    assert kinds(stream) == ["assistant_message", "stop_reason", "usage_statistics"]
    client.agents.messages.create(agent.id, input="Two")
    assert list_texts(client, made.id) == ["One", "To one."]
    assert list_texts(client, "default", agent_id=agent.id) == ["Two", "To two."]
    assert message_texts(client, agent.id) == ["One", "To one.", "Two", "To two."]
    found = client.conversations.retrieve(made.id)
    assert len(found.in_context_message_ids or []) == 3
    assert found.last_message_at is not None
    assert [item.id for item in client.conversations.list(agent_id=agent.id)] == [made.id]


def test_iterating_over_a_conversation_ends_and_repeats_nothing(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    made = client.conversations.create(agent_id=make_agent().id)
    for number in range(3):
        provider.script(f"To {number}.")
        list(client.conversations.messages.create(made.id, input=f"{number}"))
    for order in ("asc", "desc"):
        page = client.conversations.messages.list(made.id, order=order, limit=2)
        ids = [as_dict(item)["id"] for item in page]
        assert len(ids) == len(set(ids)) == 7


def test_a_conversation_is_changed_forked_recompiled_and_deleted(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    made = client.conversations.create(agent_id=agent.id)
    provider.script("To one.")
    list(client.conversations.messages.create(made.id, input="One"))
    changed = client.conversations.update(
        made.id, summary="Trains", archived=True, model_settings={"provider_type": "openai"}
    )
    assert (changed.summary, changed.archived) == ("Trains", True)
    assert client.conversations.list(agent_id=agent.id) == []
    fork = client.conversations.fork(made.id)
    assert list_texts(client, fork.id) == ["One", "To one."]
    assert f"- CONVERSATION_ID: {fork.id}" in client.conversations.recompile(fork.id)
    with pytest.raises(ConflictError, match=f"No active runs to cancel for conversation {made.id}"):
        client.conversations.cancel(made.id)
    assert client.conversations.delete(made.id) is None
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(made.id)
    with pytest.raises(NotFoundError):
        client.conversations.delete(made.id)
    assert list_texts(client, fork.id) == ["One", "To one."]


def test_a_background_send_is_resumed_and_never_done_twice(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    made = client.conversations.create(agent_id=make_agent().id)
    provider.script("Hello!")
    message = {"role": "user", "content": "Hi", "otid": "mine"}

    def send() -> list[dict[str, object]]:
        return as_dicts(
            client.conversations.messages.create(
                made.id,
                messages=[message],  # type: ignore[list-item]  # a plain dict
                background=True,
            )
        )

    first = send()
    assert send() == first
    assert as_dicts(client.conversations.messages.stream(made.id, otid="mine")) == first
    rest = client.conversations.messages.stream(made.id, otid="mine", starting_after=1)
    assert as_dicts(rest) == first[1:]
    assert len(provider.requests) == 1


def read_prompt(client: Letta, conversation_id: str, **query: str) -> str:
    """The stored system message."""
    rows = as_dicts(client.conversations.messages.list(conversation_id, order="asc", **query))  # type: ignore[arg-type]  # plain strings
    assert rows[0]["message_type"] == "system_message"
    return str(rows[0]["content"])


@pytest.mark.tools(64)
@pytest.mark.both_databases
def test_a_conversation_keeps_its_system_message_until_it_is_compiled_again(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(memory_blocks=[{"label": "human", "value": "Likes tea."}])
    made = client.conversations.create(agent_id=agent.id)
    before = read_prompt(client, made.id)
    assert "Likes tea." in before

    client.agents.blocks.update("human", agent_id=agent.id, value="Likes coffee.")

    default = read_prompt(client, "default", agent_id=agent.id)
    assert "Likes coffee." in default
    assert "- CONVERSATION_ID: default" in default
    assert read_prompt(client, made.id) == before
    shown = client.conversations.recompile(made.id, dry_run=True)
    assert "Likes coffee." in shown
    assert read_prompt(client, made.id) == before
    stored: str = json.loads(client.conversations.recompile(made.id))
    assert "Likes coffee." in stored
    assert f"- CONVERSATION_ID: {made.id}" in stored
    assert read_prompt(client, made.id) == stored
    assert read_prompt(client, "default", agent_id=agent.id) == default


def test_what_the_model_gets_in_a_conversation_is_what_is_shown_and_then_stored(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    model: str,
) -> None:
    agent = make_agent(memory_blocks=[{"label": "human", "value": "Likes tea."}])
    made = client.conversations.create(agent_id=agent.id)

    def ask() -> str:
        list(client.conversations.messages.create(made.id, input="What do I like?"))
        return str(provider.requests[-1].body)

    assert "Likes tea." in ask()
    client.agents.blocks.update("human", agent_id=agent.id, value="Likes coffee.")
    window = http.get(f"/v1/agents/{agent.id}/context", params={"conversation_id": made.id})
    assert "Likes coffee." in window.json()["core_memory"]
    sent = ask()
    assert "Likes coffee." in sent
    assert "Likes tea." not in sent
    stored = read_prompt(client, made.id)
    assert "Likes coffee." in stored
    ask()
    assert read_prompt(client, made.id) == stored


def test_an_edit_by_a_tool_is_stored_in_its_conversation_and_in_the_default_thread(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(
        include_base_tools=True, memory_blocks=[{"label": "human", "value": "Likes tea."}]
    )
    here = client.conversations.create(agent_id=agent.id)
    there = client.conversations.create(agent_id=agent.id)
    edit = {"label": "human", "old_string": "tea", "new_string": "coffee"}
    provider.script(Answer(ToolCall("memory_replace", edit)), "Done.")

    list(client.conversations.messages.create(here.id, input="I prefer coffee now."))

    # Within the turn the prompt stays as it was, so that the provider can use its cache.
    assert ["Likes tea." in str(asked.body) for asked in provider.requests] == [True, True]
    assert "Likes coffee." in read_prompt(client, here.id)
    assert "Likes coffee." in read_prompt(client, "default", agent_id=agent.id)
    assert "Likes tea." in read_prompt(client, there.id)
    list(client.conversations.messages.create(there.id, input="What do I like?"))
    assert "Likes coffee." in str(provider.requests[-1].body)
