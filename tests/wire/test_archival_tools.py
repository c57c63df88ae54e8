"""What an agent stores in its archives and finds again: archival_memory_insert and archival_memory_search."""

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, run_tool

from holdfast.testing import Answer, Gate, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

INSERT = "archival_memory_insert"
SEARCH = "archival_memory_search"
ONE_MEMORY = (
    "- 1 total memories you created are stored in archival memory (use tools to access them)"
)
TAGS = "- Available archival memory tags: "


@pytest.fixture
def agent(make_agent: "MakeAgent") -> AgentState:
    return make_agent(tools=[INSERT, SEARCH], timezone="America/Los_Angeles")


def insert(client: Letta, agent: AgentState, content: str, *tags: str) -> str:
    """The id of the new passage."""
    status, text = run_tool(client, agent, INSERT, content=content, tags=list(tags))
    assert (status, text[:18], text[-1]) == ("success", "Stored as passage-", "."), text
    return text.removeprefix("Stored as ").removesuffix(".")


def search(client: Letta, agent: AgentState, query: str, **arguments: Any) -> list[dict[str, Any]]:
    status, text = run_tool(client, agent, SEARCH, query=query, **arguments)
    assert status == "success", text
    found: list[dict[str, Any]] = json.loads(text)
    return found


def contents(found: list[dict[str, Any]]) -> list[str]:
    return [item["content"] for item in found]


def system_text(client: Letta, agent: AgentState) -> str:
    """The stored system message of the default thread."""
    rows = as_dicts(client.agents.messages.list(agent.id, order="asc", limit=1).items)
    return str(rows[0]["content"])


def count_passages(http: httpx.Client, agent: AgentState) -> int:
    return int(http.get(f"/v1/agents/{agent.id}/context").json()["num_archival_memory"])


@pytest.mark.memory(37)
def test_archival_tools_are_there_for_agents_that_name_them(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    def names(agent: AgentState) -> set[str]:
        return {tool.name or "" for tool in client.agents.tools.list(agent.id).items}

    plain = make_agent(include_base_tools=True)
    named = make_agent(tools=[INSERT, SEARCH])
    assert "conversation_search" in names(plain)
    assert not names(plain) & {INSERT, SEARCH}
    assert names(named) == {INSERT, SEARCH}

    (stored,) = client.tools.list(name=SEARCH).items
    (writer,) = client.tools.list(name=INSERT).items
    assert (stored.tool_type, writer.tool_type) == ("letta_core", "letta_core")
    parallel = [as_dict(tool)["enable_parallel_execution"] for tool in (stored, writer)]
    assert parallel == [True, False]
    client.agents.tools.attach(stored.id, agent_id=plain.id)
    assert SEARCH in names(plain)


@pytest.mark.memory(38, 39)
def test_the_system_message_shows_what_a_tool_has_stored_at_once(
    client: Letta, http: httpx.Client, agent: AgentState
) -> None:
    before = system_text(client, agent)
    assert "archival memory" not in before

    first = insert(client, agent, "Ann likes tea.", "people", "drinks")

    after = system_text(client, agent)
    assert ONE_MEMORY in after.splitlines()
    assert f"{TAGS}drinks, people" in after.splitlines()
    assert count_passages(http, agent) == 1
    second = insert(client, agent, "Ann likes tea.")
    assert first != second
    assert "- 2 total memories" in system_text(client, agent)


@pytest.mark.memory(39)
def test_the_system_message_names_a_hundred_tags(client: Letta, agent: AgentState) -> None:
    tags = [f"tag-{number:03}" for number in range(120)]
    insert(client, agent, "One.", *tags[60:])
    insert(client, agent, "Two.", *tags[:60])

    (line,) = [line for line in system_text(client, agent).splitlines() if line.startswith(TAGS)]

    assert line == f"{TAGS}{', '.join(tags[:100])} (+20 more)"


def test_the_thread_of_the_run_and_the_default_one_show_what_was_stored(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    here = client.conversations.create(agent_id=agent.id)
    elsewhere = client.conversations.create(agent_id=agent.id)
    provider.script(Answer(ToolCall(INSERT, {"content": "Ann likes tea."})), "Noted.")

    list(client.conversations.messages.create(here.id, input="I am Ann and like tea."))

    def shown(conversation_id: str) -> str:
        rows = client.conversations.messages.list(conversation_id, order="asc", limit=1).items
        return str(as_dict(rows[0])["content"])

    assert ONE_MEMORY in shown(here.id)
    assert ONE_MEMORY in system_text(client, agent)
    # Every other one with its next rebuild.
    assert ONE_MEMORY not in shown(elsewhere.id)
    assert ONE_MEMORY in client.conversations.recompile(elsewhere.id)
    assert ONE_MEMORY in shown(elsewhere.id)
    # The text stays the same within a request, and is new in the next.
    assert ONE_MEMORY not in str(provider.requests[-1].body)
    client.agents.messages.create(agent.id, input="Hi")
    assert ONE_MEMORY in str(provider.requests[-1].body)


@pytest.mark.memory(40)
def test_a_search_returns_json_best_first(client: Letta, agent: AgentState) -> None:
    assert run_tool(client, agent, SEARCH, query="tea") == ("success", "[]")
    tea = insert(client, agent, "Ann likes green tea.", "people")
    pie = insert(client, agent, "Bob likes to bake pies.", "people", "food")

    (found,) = search(client, agent, "green tea, please")
    assert (found["id"], found["content"], found["tags"]) == (
        tea,
        "Ann likes green tea.",
        ["people"],
    )
    assert found["relevance"] == {"rrf_score": pytest.approx(0.5 / 61), "fts_rank": 1}
    moment = datetime.fromisoformat(found["timestamp"])
    assert moment.utcoffset() in (timedelta(hours=-8), timedelta(hours=-7))
    assert [item["id"] for item in search(client, agent, "tea, or bake a pie")] == [pie, tea]
    assert search(client, agent, "  ") == []
    assert search(client, agent, "coffee") == []
    assert [item["id"] for item in search(client, agent, "Ann Bob", tags=["food"])] == [pie]
    both = {"tags": ["people", "food"], "tag_match_mode": "all"}
    assert [item["id"] for item in search(client, agent, "Ann Bob", **both)] == [pie]


def test_a_search_returns_ten_results_unless_told_and_never_more_than_fifty(
    client: Letta, agent: AgentState
) -> None:
    for number in range(52):
        insert(client, agent, f"Fact number {number}.")

    assert len(search(client, agent, "fact")) == 10
    assert len(search(client, agent, "fact", top_k=3)) == 3
    assert len(search(client, agent, "fact", top_k=0)) == 1
    assert len(search(client, agent, "fact", top_k=1_000)) == 50


@pytest.mark.memory(41)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"start_datetime": "yesterday"},
            "Invalid start_datetime format: yesterday. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)",
        ),
        (
            {"end_datetime": "2024-13-01"},
            "Invalid end_datetime format: 2024-13-01. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)",
        ),
        ({"start_datetime": 7}, "Invalid start_datetime format: 7."),
        ({"top_k": "many"}, "top_k must be a whole number."),
        ({"tags": 5}, "tags must be a list of strings."),
        ({"tags": [5]}, "tags must be a list of strings."),
        ({"tag_match_mode": "none"}, "tag_match_mode: 'none' is none of any, all."),
        ({"query": ["tea"]}, "query must be a string."),
    ],
)
def test_a_search_that_cannot_be_done_says_why(
    client: Letta, agent: AgentState, arguments: dict[str, Any], says: str
) -> None:
    status, text = run_tool(client, agent, SEARCH, **({"query": "tea"} | arguments))

    assert (status, text[: len(says)]) == ("error", says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"content": " \n"}, "The text of a passage must not be blank."),
        ({}, "Missing arguments: content"),
        ({"content": 5}, "content must be a string."),
        (
            {"content": "x" * 100_001},
            "Archival memory content exceeds limit of 100000 characters (found 100001)",
        ),
        ({"content": "x", "tags": ["t"] * 65}, "A passage has at most 64 tags"),
        ({"content": "x", "tags": ["t" * 201]}, "A passage has at most 64 tags of at most 200"),
        ({"content": "x", "tags": {"a": 1}}, "tags must be a list of strings."),
    ],
    ids=["blank", "missing", "no text", "too long", "many tags", "long tag", "no list"],
)
def test_what_cannot_be_stored_is_an_error_and_nothing_is_stored(
    client: Letta,
    http: httpx.Client,
    agent: AgentState,
    arguments: dict[str, Any],
    says: str,
) -> None:
    status, text = run_tool(client, agent, INSERT, **arguments)

    assert (status, text[: len(says)]) == ("error", says)
    assert count_passages(http, agent) == 0


def test_dates_are_of_the_timezone_of_the_agent(client: Letta, agent: AgentState) -> None:
    insert(client, agent, "Ann likes tea.")
    (found,) = search(client, agent, "tea")
    today = found["timestamp"][:10]
    yesterday = str(datetime.fromisoformat(today).date() - timedelta(days=1))

    assert search(client, agent, "tea", start_datetime=today, end_datetime=today)
    assert search(client, agent, "tea", end_datetime=found["timestamp"])
    assert search(client, agent, "tea", start_datetime="0001-01-01", end_datetime="9999-12-31")
    assert not search(client, agent, "tea", end_datetime=yesterday)
    assert not search(client, agent, "tea", start_datetime="9999-12-31")


@pytest.mark.parametrize(
    ("stored", "query"),
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
    ],
)
def test_no_query_is_a_syntax_error(
    client: Letta, agent: AgentState, stored: str, query: str
) -> None:
    insert(client, agent, stored)
    insert(client, agent, "unrelated words")

    assert contents(search(client, agent, query)) == [stored]


def test_a_roll_back_takes_back_what_the_run_has_stored(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    insert(client, agent, "Ann likes tea.", "kept")
    gate = Gate("never released")
    wrong = {"content": "Ann hates tea.", "tags": ["wrong"]}
    provider.script(Answer(ToolCall(INSERT, wrong)), Answer("So", gate))
    run = client.agents.messages.create_async(agent.id, input="I hate tea.")
    gate.reached.block()
    assert count_passages(http, agent) == 2
    assert f"{TAGS}kept, wrong" in system_text(client, agent)

    done = http.post(f"/v1/runs/{run.id}/cancel", json={"action": "rollback"}).json()

    assert done["status"] == "cancelled"
    assert done["metadata"]["cancellation"]["deleted_passages"] == 1
    assert contents(search(client, agent, "tea")) == ["Ann likes tea."]
    assert ONE_MEMORY in system_text(client, agent)
    assert "wrong" not in system_text(client, agent)


def test_a_cancel_without_roll_back_keeps_what_the_run_has_stored(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    gate = Gate("never released")
    provider.script(Answer(ToolCall(INSERT, {"content": "Ann likes tea."})), Answer("So", gate))
    run = client.agents.messages.create_async(agent.id, input="I like tea.")
    gate.reached.block()

    done = http.post(f"/v1/runs/{run.id}/cancel").json()

    assert "deleted_passages" not in done["metadata"]["cancellation"]
    assert contents(search(client, agent, "tea")) == ["Ann likes tea."]
