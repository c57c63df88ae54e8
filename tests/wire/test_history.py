"""Reading the message history (wire-v1 §1.10, §2.3, §2.11)."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError
from tests.support.client_objects import as_dicts, history, message_texts
from tests.support.tool_sources import SHOUT

from holdfast.testing import Answer, ScriptedProvider, Thinking, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow


@pytest.fixture
def talker(client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent") -> str:
    """An agent that got three messages: five rows with the system message, and two more."""
    agent = make_agent()
    for number in ("one", "two", "three"):
        provider.script(f"Heard {number}.")
        client.agents.messages.create(agent.id, input=f"Say {number}")
    return agent.id


def texts(client: Letta, agent_id: str, **query: Any) -> list[str]:
    rows = client.agents.messages.list(agent_id, **query).items
    return [row["content"] for row in as_dicts(rows) if row["message_type"] != "system_message"]


ALL = ["Say one", "Heard one.", "Say two", "Heard two.", "Say three", "Heard three."]


@pytest.mark.wire(77)
def test_a_new_agent_has_one_message_to_begin_a_cursor_with(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()

    (first,) = client.agents.messages.list(agent.id, limit=1).items
    assert as_dicts([first])[0]["message_type"] == "system_message"
    assert agent.message_ids == [first.id]

    client.agents.messages.create(agent.id, input="Hello?")
    later = as_dicts(client.agents.messages.list(agent.id, after=first.id).items)
    assert [row["message_type"] for row in later] == ["user_message", "assistant_message"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_history_is_listed_oldest_first_in_either_order(
    client: Letta, talker: str, order: Any
) -> None:
    assert texts(client, talker, order=order) == ALL


def test_the_order_says_from_which_end_the_window_is_cut(client: Letta, talker: str) -> None:
    assert texts(client, talker, order="desc", limit=2) == ALL[-2:]
    assert texts(client, talker, limit=2) == ALL[-2:]
    assert texts(client, talker, order="asc", limit=3) == ALL[:2]  # and the system message


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_after_means_newer_and_before_means_older_in_either_order(
    client: Letta, talker: str, order: Any
) -> None:
    rows = history(client, talker)
    middle = rows[2]["id"]

    assert texts(client, talker, order=order, after=middle) == ALL[3:]
    assert texts(client, talker, order=order, before=middle) == ALL[:2]


def test_paging_through_the_history_ends_and_repeats_nothing(client: Letta, talker: str) -> None:
    pages = client.agents.messages.list(talker, order="asc", limit=2)
    forwards = [row["content"] for row in as_dicts(pages)][1:]
    assert forwards == ALL

    newest = history(client, talker)[-1]["id"]
    backwards = list(client.agents.messages.list(talker, before=newest, limit=2))
    assert len({row.id for row in backwards}) == len(backwards) == 6


def test_an_unknown_cursor_is_not_found(client: Letta, talker: str) -> None:
    with pytest.raises(NotFoundError):
        client.agents.messages.list(
            talker, after="message-" + "0" * 8 + "-0000-4000-8000-" + "0" * 12
        )


def test_the_messages_of_one_row_share_its_id_and_a_limit_counts_rows(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(Answer(Thinking("Hm."), "I shout.", ToolCall("shout", {"text": "a"})), "Done.")
    client.agents.messages.create(agent.id, input="Shout")

    thought, said, call, result, _ = history(client, agent.id)[1:]
    assert thought["id"] == said["id"] == call["id"] != result["id"]
    newest_rows = history(client, agent.id, limit=3)
    assert [row["message_type"] for row in newest_rows] == [
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert history(client, agent.id, after=call["id"])[0]["id"] == result["id"]


def test_a_message_can_be_fetched_with_all_that_it_shows_as(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script(Answer(Thinking("Hm."), "So it is."))
    reply = client.agents.messages.create(agent.id, input="Is it?")

    fetched = client.messages.retrieve(reply.messages[0].id)

    assert as_dicts(fetched) == as_dicts(reply.messages)


def test_only_the_wished_types_are_listed(client: Letta, talker: str) -> None:
    rows = client.agents.messages.list(talker, include_return_message_types=["user_message"]).items

    assert [row["content"] for row in as_dicts(rows)] == ALL[::2]


def test_the_default_conversation_is_the_whole_history_of_an_agent_without_others(
    client: Letta, talker: str
) -> None:
    assert texts(client, talker, conversation_id="default") == ALL


def test_messages_of_all_agents_are_listed_together(client: Letta, talker: str) -> None:
    assert set(ALL) <= {row.get("content") for row in as_dicts(client.messages.list(limit=10))}


def test_a_reset_empties_the_context_and_keeps_the_history(
    client: Letta, provider: ScriptedProvider, talker: str
) -> None:
    before = client.agents.retrieve(talker)

    assert client.agents.messages.reset(talker, add_default_initial_messages=False) is None

    after = client.agents.retrieve(talker)
    assert before.message_ids is not None
    assert after.message_ids == before.message_ids[:1]
    assert texts(client, talker) == ALL
    client.agents.messages.create(talker, input="Who am I?")
    assert "Say one" not in str(provider.requests[-1].messages)


def test_in_context_rows_and_stored_rows_are_the_same(client: Letta, talker: str) -> None:
    rows = client.agents.messages.list(talker).items

    assert client.agents.retrieve(talker).message_ids == [row.id for row in rows]


def test_messages_are_not_edited(http: httpx.Client, client: Letta, talker: str) -> None:
    message = client.agents.messages.list(talker).items[1]

    answer = http.patch(f"/v1/agents/{talker}/messages/{message.id}", json={"content": "Never"})

    assert answer.status_code == 405
    assert "Message editing is no longer supported." in answer.json()["detail"]
    assert message_texts(client, talker) == ALL


def test_dates_are_whole_seconds_with_an_offset(http: httpx.Client, talker: str) -> None:
    for message in http.get(f"/v1/agents/{talker}/messages").json():
        assert len(message["date"]) == len("2026-01-29T20:44:04+00:00")
        assert message["date"].endswith("+00:00")


def test_a_limit_out_of_range_is_refused(client: Letta, talker: str) -> None:
    for limit in (0, -1, 10**9):
        with pytest.raises(UnprocessableEntityError):
            client.agents.messages.list(talker, limit=limit)
