"""Agents that send messages to each other (wire-v1 §7.3)."""

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dicts, eventually, message_texts
from tests.support.tool_sources import SHOUT
from tests.support.wire_checks import assert_answers, assert_cancelled

from holdfast.testing import Answer, Gate, ProviderRequest, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

ASK = "send_message_to_agent_and_wait_for_reply"
TELL = "send_message_to_agent_async"
ASK_MATCHING = "send_message_to_agents_matching_tags"


@pytest.fixture
def asker(make_agent: "MakeAgent") -> "AgentState":
    return make_agent(tools=[ASK, TELL, ASK_MATCHING], system="I ask.")


@pytest.fixture
def helper(make_agent: "MakeAgent") -> "AgentState":
    return make_agent(tools=[ASK], system="I help.")


def has_system_prompt(system: str) -> "Callable[[ProviderRequest], bool]":
    """The provider requests of the agent with this system prompt."""
    return lambda request: system in json.dumps(request.body)


def results(client: Letta, agent: "AgentState", text: str = "Go") -> list[tuple[str, str]]:
    reply = client.agents.messages.create(agent.id, input=text)
    return [
        (row["status"], row["tool_return"])
        for row in as_dicts(reply.messages)
        if "tool_return" in row
    ]


def ask(agent: "AgentState", message: str = "How much is two and two?") -> Answer:
    return Answer(ToolCall(ASK, {"message": message, "other_agent_id": agent.id}))


def runs_of(client: Letta, agent: "AgentState") -> list[Any]:
    return list(client.runs.list(agent_id=agent.id).items)


def test_the_answer_of_the_other_agent_is_returned(
    client: Letta, provider: ScriptedProvider, asker: "AgentState", helper: "AgentState"
) -> None:
    provider.script(ask(helper), "It is four.", when=has_system_prompt("I ask."))
    provider.script("Four.", when=has_system_prompt("I help."))

    assert results(client, asker) == [("success", "Four.")]

    (heard, answered) = message_texts(client, helper.id)
    assert "How much is two and two?" in heard
    assert asker.id in heard
    assert answered == "Four."


def test_a_message_is_sent_without_waiting(
    client: Letta, provider: ScriptedProvider, asker: "AgentState", helper: "AgentState"
) -> None:
    gate = Gate("held until the asker is done")
    told = Answer(ToolCall(TELL, {"message": "Psst.", "other_agent_id": helper.id}))
    provider.script(told, "Done.", when=has_system_prompt("I ask."))
    provider.script(Answer(gate, "I heard."), when=has_system_prompt("I help."))

    assert results(client, asker) == [("success", "Successfully sent message")]

    gate.release()
    eventually(
        lambda: [run.status for run in runs_of(client, helper)],
        lambda statuses: statuses == ["completed"],
    )
    assert message_texts(client, helper.id)[-1] == "I heard."


def test_all_agents_with_the_tags_are_asked(
    client: Letta, provider: ScriptedProvider, asker: "AgentState", make_agent: "MakeAgent"
) -> None:
    team, night, day = (f"{name}-{uuid4().hex[:8]}" for name in ("team", "night", "day"))
    one = make_agent(tags=[team, night], system="I help one.")
    two = make_agent(tags=[team, day], system="I help two.")
    make_agent(tags=[day], system="I am in no team.")
    make_agent(tags=[team], system="I never work.")
    provider.script(
        Answer(
            ToolCall(
                ASK_MATCHING, {"message": "Awake?", "match_all": [team], "match_some": [night, day]}
            )
        ),
        "Done.",
        when=has_system_prompt("I ask."),
    )
    provider.script("Yes.", when=has_system_prompt("I help one."))
    provider.script("No.", when=has_system_prompt("I help two."))

    ((status, text),) = results(client, asker)

    assert status == "success"
    answers = {item["agent_id"]: item["response"] for item in json.loads(text)}
    assert answers == {one.id: "Yes.", two.id: "No."}


def test_without_tags_nobody_is_asked(
    client: Letta, provider: ScriptedProvider, asker: "AgentState"
) -> None:
    given = {"message": "Anybody?", "match_all": [], "match_some": []}
    provider.script(Answer(ToolCall(ASK_MATCHING, given)), "Done.")

    ((status, text),) = results(client, asker)

    assert status == "error"
    assert "at least one tag" in text


def test_agents_never_wait_for_each_other_in_a_circle(
    client: Letta, provider: ScriptedProvider, asker: "AgentState", helper: "AgentState"
) -> None:
    provider.script(ask(helper), "He does not know.", when=has_system_prompt("I ask."))
    provider.script(ask(asker), "I do not know.", when=has_system_prompt("I help."))

    assert results(client, asker) == [("success", "I do not know.")]

    (row,) = [
        row for row in as_dicts(client.agents.messages.list(helper.id)) if "tool_return" in row
    ]
    assert row["status"] == "error"
    assert "waits for your answer" in row["tool_return"]


def test_an_agent_cannot_ask_itself(
    client: Letta, provider: ScriptedProvider, asker: "AgentState"
) -> None:
    provider.script(ask(asker), "Never mind.")

    ((status, text),) = results(client, asker)

    assert status == "error"
    assert "cannot be asked" in text


def test_who_does_not_exist_cannot_be_asked(
    client: Letta, provider: ScriptedProvider, asker: "AgentState"
) -> None:
    unknown = {"message": "Hello?", "other_agent_id": "agent-nobody"}
    provider.script(Answer(ToolCall(ASK, unknown)), Answer(ToolCall(TELL, unknown)), "Nobody.")

    assert [status for status, _ in results(client, asker)] == ["error", "error"]
    assert_answers(client, provider, asker.id)


def test_a_cancel_reaches_the_agent_that_is_waited_for(
    client: Letta, provider: ScriptedProvider, asker: "AgentState", helper: "AgentState"
) -> None:
    gate = Gate("never released")
    provider.script(ask(helper), when=has_system_prompt("I ask."))
    provider.script(Answer(gate), when=has_system_prompt("I help."))
    run = client.agents.messages.create_async(asker.id, input="Go")
    gate.reached.block()

    client.agents.messages.cancel(asker.id, run_ids=[run.id])

    assert_cancelled(client, run.id)
    (other,) = runs_of(client, helper)
    eventually(lambda: client.runs.retrieve(other.id).status, lambda it: it == "cancelled")
    provider.requests[-1].finished.block()
    for agent in (asker, helper):
        assert_answers(client, provider, agent.id)


def test_an_agent_that_waits_for_a_person_has_no_answer_yet(
    client: Letta,
    provider: ScriptedProvider,
    asker: "AgentState",
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
) -> None:
    tool = make_tool(SHOUT, default_requires_approval=True)
    careful = make_agent(tool_ids=[tool.id], system="I am careful.")
    provider.script(ask(careful), "He has to ask.", when=has_system_prompt("I ask."))
    provider.script(
        Answer(ToolCall("shout", {"text": "hey"})), when=has_system_prompt("I am careful.")
    )

    ((status, text),) = results(client, asker)

    assert status == "error"
    assert "waits for a person's approval" in text


def test_an_agent_that_answers_with_a_tool_has_answered(
    client: Letta, provider: ScriptedProvider, asker: "AgentState", make_agent: "MakeAgent"
) -> None:
    old = make_agent(tools=["send_message"], system="I am old.")
    provider.script(ask(old), "He says so.", when=has_system_prompt("I ask."))
    told = Answer(ToolCall("send_message", {"message": "Four, as ever."}))
    provider.script(told, Answer(""), when=has_system_prompt("I am old."))

    assert results(client, asker) == [("success", "Four, as ever.")]


def test_a_message_is_not_passed_on_for_ever(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    ping, pong = (make_agent(tools=[TELL], system=f"I am {name}.") for name in ("ping", "pong"))

    def pass_on(request: ProviderRequest) -> Answer | str:
        if request.messages[-1]["role"] == "tool":
            return "Passed on."
        other = pong if "I am ping." in json.dumps(request.body) else ping
        return Answer(ToolCall(TELL, {"message": "Psst.", "other_agent_id": other.id}))

    provider.respond_with(pass_on)
    client.agents.messages.create(ping.id, input="Go")

    def list_errors() -> list[str]:
        rows = [
            row
            for agent in (ping, pong)
            for row in as_dicts(client.agents.messages.list(agent.id, limit=100))
        ]
        return [str(row["tool_return"]) for row in rows if row.get("status") == "error"]

    (refused,) = eventually(list_errors, bool)
    assert "come through 10 agents" in refused
    assert len(runs_of(client, ping)) + len(runs_of(client, pong)) == 11
