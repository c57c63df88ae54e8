"""Agents through the MCP server: who is there, talking to them, and what they remember."""

import re
from uuid import uuid4

import pytest
from letta_client import Letta
from tests.support.client_objects import message_texts
from tests.support.mcp_client import (
    LEGACY,
    VERSIONS,
    call,
    call_for_value,
    connect_mcp,
    fail,
    run_id_of,
    text_of,
)
from tests.support.server_process import ServerProcess
from tests.support.tool_sources import SHOUT
from tests.support.wire_server import MakeAgent, MakeTool

from holdfast.testing import Answer, HttpError, ScriptedProvider, ToolCall

pytestmark = pytest.mark.slow


async def test_clients_of_both_generations_see_the_same_tools(
    server: ServerProcess, generation: str
) -> None:
    async with connect_mcp(server.address, generation) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

        assert client.server_info is not None
        assert client.server_info.name == "holdfast"
        assert client.protocol_version == VERSIONS[generation]
    assert list(tools) == [
        "list_agents",
        "send_message",
        "search_memory",
        "get_run",
        "list_runs",
        "cancel_run",
        "list_approvals",
        "decide_approval",
    ]
    reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}  # type: ignore[union-attr]  # all have some
    assert reading == {"list_agents", "search_memory", "get_run", "list_runs", "list_approvals"}
    changing = [tool.annotations for name, tool in tools.items() if name not in reading]
    assert all(hints is not None and hints.destructive_hint for hints in changing)
    assert tools["send_message"].input_schema["required"] == ["agent", "message"]
    assert "does not stop the run" in (tools["send_message"].description or "")


async def test_a_client_finds_an_agent_and_talks_to_it(
    server: ServerProcess,
    generation: str,
    letta: Letta,
    provider: ScriptedProvider,
    make_agent: MakeAgent,
) -> None:
    name = f"ada-{uuid4()}"
    agent = make_agent(name=name, description="Knows the engine.")
    provider.script("I am Ada.", "You said hello.")
    async with connect_mcp(server.address, generation) as client:
        found = await call_for_value(client, "list_agents", query=name.upper())
        assert found == {
            "agents": [{"id": agent.id, "name": name, "description": "Knows the engine."}]
        }

        by_name = await call(client, "send_message", agent=name, message="Hello")
        by_id = await call(client, "send_message", agent=agent.id, message="What did I say?")

    assert (by_name, by_id) == ("I am Ada.", "You said hello.")
    assert message_texts(letta, agent.id) == [
        "Hello",
        "I am Ada.",
        "What did I say?",
        "You said hello.",
    ]


async def test_all_that_an_agent_says_in_a_run_is_its_answer(
    server: ServerProcess,
    generation: str,
    provider: ScriptedProvider,
    make_agent: MakeAgent,
    make_tool: MakeTool,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(
        Answer("Let me shout.", ToolCall("shout", {"text": "hi"}, id="call_1")), "I shouted."
    )
    told: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        assert progress == len(told) + 1
        told.append(str(message))

    async with connect_mcp(server.address, generation) as client:
        result = await client.call_tool(
            "send_message", {"agent": agent.id, "message": "Shout"}, progress_callback=note
        )

    assert text_of(result) == "Let me shout.\n\nI shouted."
    assert told == [
        f"This is the run {run_id_of(result)}.",
        "Let me shout.\nCalls shout.",
        "shout: finished.",
        "I shouted.",
    ]


async def test_a_conversation_is_a_thread_of_its_own(
    server: ServerProcess,
    generation: str,
    letta: Letta,
    provider: ScriptedProvider,
    make_agent: MakeAgent,
) -> None:
    agent = make_agent()
    other = make_agent()
    conversation = letta.conversations.create(agent_id=agent.id)
    provider.script("Aside.", "By default.")
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Psst"}
        assert await call(client, "send_message", **sent, conversation=conversation.id) == "Aside."
        assert await call(client, "send_message", **sent, conversation="default") == "By default."
        sent["agent"] = other.id
        refused = await fail(client, "send_message", **sent, conversation=conversation.id)

    assert refused == f"Conversation with ID {conversation.id} not found"


async def test_agents_are_listed_page_by_page(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    prefix = f"page-{uuid4()}"
    made = [make_agent(name=f"{prefix}-{number}").id for number in range(3)]
    async with connect_mcp(server.address, generation) as client:
        first = await call_for_value(client, "list_agents", query=prefix, limit=2)
        second = await call_for_value(
            client, "list_agents", query=prefix, limit=2, after=first["next"]
        )

    assert [agent["id"] for agent in first["agents"] + second["agents"]] == made[::-1]
    assert "next" not in second


async def test_an_unknown_or_ambiguous_agent_is_an_error_that_says_what_to_do(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    name = f"twin-{uuid4()}"
    twins = [make_agent(name=name).id for _ in range(2)]
    missing = f"agent-{uuid4()}"
    async with connect_mcp(server.address, generation) as client:
        nobody = await fail(client, "send_message", agent="nobody", message="Hello")
        nowhere = await fail(client, "search_memory", agent=missing, query="Hello")
        several = await fail(client, "send_message", agent=name, message="Hello")

    assert nobody == (
        "There is no agent with the id or name 'nobody'. Call list_agents to see them."
    )
    assert missing in nowhere
    assert all(agent_id in several for agent_id in twins)


@pytest.mark.parametrize(
    ("tool", "arguments", "fault"),
    [
        ("send_message", {"agent": "ada"}, "missing required field `message`"),
        ("send_message", {"agent": "ada", "message": ""}, "length >= 1"),
        ("send_message", {"agent": "ada", "message": {"text": "hi"}}, "Expected `str`"),
        ("send_message", {"agent": "a", "message": "b", "wait": 1}, "unknown field `wait`"),
        ("send_message", {"agent": "a", "message": "b", "wait_seconds": 601}, "<= 600"),
        ("list_agents", {"limit": 101}, "<= 100"),
        ("search_memory", {"agent": "a", "query": "b", "limit": 51}, "<= 50"),
        ("decide_approval", {"approval_id": "x"}, "missing required field `approve`"),
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_that_names_the_fault(
    server: ServerProcess, tool: str, arguments: dict[str, object], fault: str
) -> None:
    async with connect_mcp(server.address, LEGACY) as client:
        text = await fail(client, tool, **arguments)

    assert text.startswith(f"These arguments do not fit {tool}: ")
    assert fault in text


async def test_an_argument_that_is_null_counts_as_not_given(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    agent = make_agent()
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Hello", "conversation": None, "wait_seconds": None}
        assert await call(client, "send_message", **sent) == "Hello."


async def test_a_failed_run_is_an_error_that_says_why(
    server: ServerProcess, generation: str, provider: ScriptedProvider, make_agent: MakeAgent
) -> None:
    agent = make_agent()
    provider.script(HttpError(401))
    async with connect_mcp(server.address, generation) as client:
        text = await fail(client, "send_message", agent=agent.id, message="Hello")

    assert "The run failed" in text
    assert "llm_authentication" in text
    assert re.search(r"run-[0-9a-f-]{36}", text)


async def test_a_client_searches_what_an_agent_stored_and_what_was_said(
    server: ServerProcess,
    generation: str,
    letta: Letta,
    provider: ScriptedProvider,
    make_agent: MakeAgent,
) -> None:
    agent = make_agent()
    letta.agents.passages.create(agent.id, text="The heron nests in April.", tags=["birds"])
    provider.script("A heron is a bird.")
    async with connect_mcp(server.address, generation) as client:
        await call(client, "send_message", agent=agent.id, message="What is a stork?")
        found = await call_for_value(client, "search_memory", agent=agent.id, query="heron")

    (passage,) = found["passages"]
    assert (passage["text"], passage["tags"]) == ("The heron nests in April.", ["birds"])
    (message,) = found["messages"]
    assert (message["role"], message["text"]) == ("assistant", "A heron is a bird.")
