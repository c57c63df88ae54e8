"""What was said is found again: conversation_search, messages.search and POST /v1/agents/messages/search."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, run_tool

from holdfast.testing import Answer, Gate, ScriptedProvider, Thinking, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

TOOL = "conversation_search"
UNKNOWN_AGENT = "agent-00000000-0000-4000-8000-000000000000"
UNKNOWN_CONVERSATION = "conv-00000000-0000-4000-8000-000000000000"


@pytest.fixture
def agent(make_agent: "MakeAgent") -> AgentState:
    return make_agent(tools=[TOOL], timezone="America/Los_Angeles", system="You keep swordfish.")


def say(
    client: Letta, provider: ScriptedProvider, agent: AgentState, text: str, *answers: Any
) -> None:
    provider.script(*(answers or ("I see.",)))
    client.agents.messages.create(agent.id, input=text)


def recall(client: Letta, agent: AgentState, **arguments: Any) -> list[dict[str, Any]]:
    """The results of conversation_search."""
    status, text = run_tool(client, agent, TOOL, **arguments)
    assert status == "success", text
    found: dict[str, Any] = json.loads(text)
    count = len(found["results"])
    assert found["message"] == (f"Showing {count} results:" if count else "No results found.")
    results: list[dict[str, Any]] = found["results"]
    return results


def contents(found: list[dict[str, Any]]) -> list[str]:
    return [item["content"] for item in found]


def search(client: Letta, agent: AgentState, query: str, **fields: Any) -> list[dict[str, Any]]:
    return as_dicts(client.messages.search(query=query, agent_id=agent.id, **fields))


def search_rows(http: httpx.Client, agent: AgentState, **body: Any) -> list[dict[str, Any]]:
    answer = http.post("/v1/agents/messages/search", json={"agent_id": agent.id} | body)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()
    return rows


@pytest.mark.memory(42)
def test_a_word_of_an_old_message_finds_it(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    say(client, provider, agent, "The password is halibut.")
    say(client, provider, agent, "The weather is fine.")
    client.agents.messages.reset(agent.id, add_default_initial_messages=False)

    (found,) = recall(client, agent, query="which passwords?")

    assert (found["role"], found["content"]) == ("user", "The password is halibut.")
    assert found["relevance"] == {
        "rrf_score": pytest.approx(0.5 / 61),
        "fts_rank": 1,
        "search_mode": "fts",
    }
    assert re.fullmatch(r"\d+[sm] ago", found["time_ago"])
    moment = datetime.fromisoformat(found["timestamp"])
    assert moment.utcoffset() in (timedelta(hours=-8), timedelta(hours=-7))
    assert run_tool(client, agent, TOOL, query="flounder") == (
        "success",
        '{"message": "No results found.", "results": []}',
    )


@pytest.mark.memory(43)
def test_what_the_agent_said_is_found_and_nothing_but_what_was_said(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    other = client.conversations.create(agent_id=agent.id)
    provider.script("There are swordfish here.")
    list(client.conversations.messages.create(other.id, input="What is here?"))
    calls = Answer("I look for swordfish.", ToolCall(TOOL, {"query": "swordfish"}))
    say(client, provider, agent, "Look.", calls, "Found.")

    # Neither the system message, nor the call, nor what it returned.
    (found,) = recall(client, agent, query="swordfish")

    assert (found["role"], found["content"]) == ("assistant", "There are swordfish here.")
    assert recall(client, agent, query="swordfish", roles=["user"]) == []
    assert recall(client, agent, query="swordfish", roles=["tool"]) == []
    assert recall(client, agent, roles=["tool"]) == []
    assert contents(recall(client, agent, query="here", roles=["tool", "user"])) == [
        "What is here?"
    ]


@pytest.mark.memory(44)
def test_dates_alone_find_what_was_said_then(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    say(client, provider, agent, "Good morning.", "Good morning to you.")
    (newest, first) = recall(client, agent)
    assert contents([newest, first]) == ["Good morning to you.", "Good morning."]
    assert newest["relevance"] == {"rrf_score": 0.0, "search_mode": "timestamp"}
    today = first["timestamp"][:10]
    last_year = str(int(today[:4]) - 1)

    assert len(recall(client, agent, start_date=today, end_date=today)) == 2
    assert (
        recall(client, agent, start_date=last_year + "-01-01", end_date=last_year + "-12-31") == []
    )
    assert recall(client, agent, start_date="9999-12-31") == []
    assert recall(client, agent, start_date=today, end_date="0001-01-01") == []
    assert len(recall(client, agent, start_date="0001-01-01", end_date="9999-12-31")) == 2
    assert len(recall(client, agent, end_date=newest["timestamp"], limit=1)) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"start_date": "soon"},
            "Invalid start_date format: soon. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)",
        ),
        ({"end_date": "2024-02-30"}, "Invalid end_date format: 2024-02-30."),
        ({"roles": ["system"]}, "roles: 'system' is none of assistant, user, tool."),
        ({"roles": 5}, "roles must be a list of strings."),
        ({"limit": "few"}, "limit must be a whole number."),
        ({"query": 5}, "query must be a string."),
    ],
)
def test_a_search_that_cannot_be_done_says_why(
    client: Letta, agent: AgentState, arguments: dict[str, Any], says: str
) -> None:
    status, text = run_tool(client, agent, TOOL, **arguments)

    assert (status, text[: len(says)]) == ("error", says)


def test_a_search_returns_five_results_unless_told(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    for number in range(6):
        say(client, provider, agent, f"Fact {number}", f"Fact {number} is noted.")

    assert len(recall(client, agent, query="fact")) == 5
    assert len(recall(client, agent, query="fact", limit=0)) == 1
    assert len(recall(client, agent, query="fact", limit=99)) == 12


@pytest.mark.memory(45)
@pytest.mark.parametrize("mode", ["fts", "vector", "hybrid"])
def test_messages_are_found_in_every_mode(
    client: Letta, provider: ScriptedProvider, agent: AgentState, mode: Any
) -> None:
    say(client, provider, agent, "Ann likes tea.", Answer(Thinking("Tea it is."), "Ann likes tea!"))

    answer = client.messages.with_raw_response.search(
        query="tea", agent_id=agent.id, search_mode=mode
    )

    items = as_dicts(answer.parse())
    by_type = {item["message_type"]: item for item in items}
    assert by_type.keys() == {"user_message", "reasoning_message", "assistant_message"}
    assert by_type["user_message"]["content"] == "Ann likes tea."
    assert by_type["reasoning_message"]["reasoning"] == "Tea it is."
    assert by_type["assistant_message"]["content"] == "Ann likes tea!"
    said, thought = by_type["assistant_message"], by_type["reasoning_message"]
    assert said["message_id"] == thought["message_id"]
    assert abs(items.index(said) - items.index(thought)) == 1
    for item in items:
        assert item["message_id"].startswith("message-")
        assert (item["agent_id"], item["conversation_id"]) == (agent.id, None)
        assert item["created_at"].tzinfo is not None
    warnings = json.loads(answer.headers.get("x-holdfast-warnings", "[]"))
    assert len(warnings) == (mode == "vector")


@pytest.mark.memory(46)
def test_a_search_keeps_to_its_conversation(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    other = client.conversations.create(agent_id=agent.id)
    provider.script("Tea there.")
    list(client.conversations.messages.create(other.id, input="Is there tea?"))
    say(client, provider, agent, "Is here tea?", "Tea here.")

    def find(conversation_id: str, **fields: Any) -> set[tuple[str, str | None]]:
        found = as_dicts(
            client.messages.search(query="tea", conversation_id=conversation_id, **fields)
        )
        return {(item["content"], item["conversation_id"]) for item in found}

    there = {("Is there tea?", other.id), ("Tea there.", other.id)}
    here = {("Is here tea?", None), ("Tea here.", None)}
    assert find(other.id) == find(other.id, agent_id=agent.id) == there
    assert find("default", agent_id=agent.id) == here
    assert len(search(client, agent, "tea")) == 4


def test_unknown_agents_and_conversations_are_not_found(
    client: Letta, http: httpx.Client, agent: AgentState, make_agent: "MakeAgent"
) -> None:
    with pytest.raises(NotFoundError):
        client.messages.search(query="tea", agent_id=UNKNOWN_AGENT)
    with pytest.raises(NotFoundError):
        client.messages.search(query="tea", agent_id="nobody")
    with pytest.raises(NotFoundError):
        client.messages.search(query="tea", conversation_id=UNKNOWN_CONVERSATION)
    of_another = client.conversations.create(agent_id=make_agent().id)
    with pytest.raises(NotFoundError):
        client.messages.search(query="tea", conversation_id=of_another.id, agent_id=agent.id)
    for path in ("/v1/messages/search", "/v1/agents/messages/search"):
        body = {"query": "tea", "conversation_id": "default"}
        assert http.post(path, json=body).status_code == 400
        assert http.post(path, json=body | {"agent_id": UNKNOWN_AGENT}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": None},
        {"query": " \n"},
        {"query": 5},
        {"query": "tea", "limit": 0},
        {"query": "tea", "limit": 101},
        {"query": "tea", "search_mode": "magic"},
        {"query": "tea", "start_date": "yesterday"},
        {"query": "tea", "agent_id": 5},
        {"query": "tea", "agent_id": "a" * 10_000},
    ],
    ids=str,
)
def test_a_malformed_search_is_refused(
    http: httpx.Client, agent: AgentState, body: dict[str, Any]
) -> None:
    assert http.post("/v1/messages/search", json=body).status_code == 422


def test_the_client_sees_a_refused_search(client: Letta) -> None:
    with pytest.raises(UnprocessableEntityError, match="query must not be blank"):
        client.messages.search(query="  ")


def test_stored_messages_are_found_with_their_ranks(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    say(client, provider, agent, "Ann likes tea.", "And Bob likes tea and tea.")

    best, second = search_rows(http, agent, query="Bob's tea", search_mode="fts")

    assert (best["fts_rank"], second["fts_rank"]) == (1, 2)
    assert best["vector_rank"] is None
    assert (best["rrf_score"], second["rrf_score"]) == pytest.approx((0.5 / 61, 0.5 / 62))
    assert best["embedded_text"] == "And Bob likes tea and tea."
    assert best["message"]["role"] == "assistant"
    assert best["message"]["content"] == [{"type": "text", "text": "And Bob likes tea and tea."}]
    newest = search_rows(http, agent)
    assert [row["embedded_text"] for row in newest] == [
        "And Bob likes tea and tea.",
        "Ann likes tea.",
    ]
    assert [row["rrf_score"] for row in newest] == [0, 0]
    assert [row["fts_rank"] for row in newest] == [None, None]
    (mine,) = search_rows(http, agent, query="tea", roles=["user", "system"])
    assert mine["embedded_text"] == "Ann likes tea."
    assert search_rows(http, agent, roles=["tool", "function"]) == []
    assert len(search_rows(http, agent, roles=[], limit=1)) == 1
    bad = http.post("/v1/agents/messages/search", json={"roles": ["nobody"]})
    assert bad.status_code == 422
    everywhere = http.post("/v1/agents/messages/search", json={"query": "Bob", "limit": 100})
    assert best in everywhere.json()


def test_dates_without_an_offset_are_in_utc(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    say(client, provider, agent, "Ann likes tea.")
    (found,) = search(client, agent, "tea")
    moment = found["created_at"]
    day = moment.astimezone(UTC).date()

    assert search(client, agent, "tea", start_date=str(day), end_date=str(day))
    assert search(client, agent, "tea", start_date=moment, end_date=moment)
    assert not search(client, agent, "tea", start_date=moment + timedelta(microseconds=1))
    assert not search(client, agent, "tea", end_date=f"{day}T00:00:00Z")
    assert not search(client, agent, "tea", start_date="9999-12-31", end_date="0001-01-01")


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ("A cat AND a dog", "dog AND"),
        ("near the OR gate", 'NEAR(gate, 5) OR "'),
        ("C* is no C^2", "c* ^ : -"),
        ("column:value", "value:column"),
        ("The mass is 5 kg", "kg"),
        ("我喜欢喝绿茶", "绿茶"),
        ("東京タワーに登った", "タワー"),
        ("ฉันชอบดื่มชาเขียว", "ชาเขียว"),
        ("It costs 100 %!", "%!"),
        ("nothing but tea", "tea " + "filler " * 150_000),
        ("-" * 1_200, "-" * 1_000_000),
    ],
    ids=[
        "AND",
        "NEAR",
        "star",
        "colon",
        "two letters",
        "Chinese",
        "Japanese",
        "Thai",
        "punctuation",
        "1 MB",
        "1 MB of punctuation",
    ],
)
def test_no_query_is_a_syntax_error(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    said: str,
    query: str,
) -> None:
    say(client, provider, agent, said, "Unrelated words.")

    assert contents(recall(client, agent, query=query)) == [said]
    assert contents(search(client, agent, query)) == [said]
    assert [row["embedded_text"] for row in search_rows(http, agent, query=query)] == [said]


def test_what_is_said_with_a_tool_is_found(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    """Agents of older types answer with the tool send_message."""
    agent = make_agent(
        tools=[TOOL, "send_message"],
        tool_rules=[{"type": "exit_loop", "tool_name": "send_message"}],
    )
    call = ToolCall("send_message", {"message": "I like halibut."})
    say(client, provider, agent, "What do you like?", Answer("Fish, I think.", call))

    (found,) = recall(client, agent, query="halibut")
    assert (found["thinking"], found["content"]) == ("Fish, I think.", "I like halibut.")
    items = search(client, agent, "halibut")
    assert contents(items) == ["Fish, I think.", "I like halibut."]


def test_images_are_left_out_of_results(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    source = {"type": "base64", "media_type": "image/png", "data": pixel}
    content = [{"type": "text", "text": "A halibut."}, {"type": "image", "source": source}]
    provider.script("Nice.")
    client.agents.messages.create(
        agent.id,
        messages=[{"role": "user", "content": content}],  # type: ignore[list-item]  # a plain dict
    )

    assert contents(search(client, agent, "halibut")) == ["A halibut."]


def test_a_summary_is_found_by_its_words_alone(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    say(client, provider, agent, "Hello.")
    say(client, provider, agent, "Hello again.")
    provider.script("They spoke of halibut.")
    client.agents.messages.compact(agent.id)

    (found,) = search(client, agent, "halibut")
    assert (found["message_type"], found["content"]) == ("user_message", "They spoke of halibut.")
    assert search(client, agent, "system_alert compaction_stats trigger") == []
    # The tool finds what was said, not what was written about it.
    assert recall(client, agent, query="halibut") == []
    (row,) = search_rows(http, agent, query="halibut", roles=["summary"])
    assert row["message"]["role"] == "summary"


def test_a_fork_finds_what_it_shares_also_when_the_original_is_deleted(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    original = client.conversations.create(agent_id=agent.id)
    provider.script("Noted.")
    list(client.conversations.messages.create(original.id, input="Halibut before."))
    fork = client.conversations.fork(original.id)
    for conversation_id, text in (
        (fork.id, "Halibut in the fork."),
        (original.id, "Halibut after."),
    ):
        provider.script("Noted.")
        list(client.conversations.messages.create(conversation_id, input=text))

    def find(conversation_id: str) -> set[str]:
        found = client.messages.search(query="halibut", conversation_id=conversation_id)
        return set(contents(as_dicts(found)))

    assert find(fork.id) == {"Halibut before.", "Halibut in the fork."}
    assert find(original.id) == {"Halibut before.", "Halibut after."}
    client.conversations.delete(original.id)
    assert find(fork.id) == {"Halibut before.", "Halibut in the fork."}
    # Each message once, and none that nobody has any more.
    everything = contents(recall(client, agent, query="halibut"))
    assert sorted(everything) == ["Halibut before.", "Halibut in the fork."]
    with pytest.raises(NotFoundError):
        client.messages.search(query="halibut", conversation_id=original.id)
    client.conversations.delete(fork.id)
    assert recall(client, agent, query="halibut") == []


def test_what_a_roll_back_took_out_of_the_context_is_still_found(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    gate = Gate("never released")
    provider.script(Answer("Halibut it is", gate))
    run = client.agents.messages.create_async(agent.id, input="Fish?")
    gate.reached.block()
    http.post(f"/v1/runs/{run.id}/cancel", json={"action": "rollback"})

    assert contents(recall(client, agent, query="halibut")) == ["Halibut it is"]


def test_messages_of_a_deleted_agent_are_not_found(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    say(client, provider, agent, "Sturgeon.")
    body = {"query": "sturgeon", "limit": 100}
    (found,) = http.post("/v1/agents/messages/search", json=body).json()
    assert found["message"]["agent_id"] == agent.id

    client.agents.delete(agent.id)

    assert http.post("/v1/agents/messages/search", json=body).json() == []


def test_the_recompiled_system_message_is_not_found(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    client.agents.update(agent.id, system="Now you keep flounders.")
    assert "flounders" in client.agents.recompile(agent.id)

    assert search(client, agent, "flounders") == []
    assert as_dict(client.agents.messages.list(agent.id).items[0])["content"].startswith("Now you")
