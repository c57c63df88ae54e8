"""An answer that comes again, too late, or beside another (wire-v1 §6.6)."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import BadRequestError, ConflictError, Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dicts, history, message_texts
from tests.support.server_process import ServerProcess
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import SHOUT, WAIT_AT_GATE, WHISPER
from tests.support.wire_approvals import (
    CALL,
    allow,
    answer,
    approval_message,
    deny,
    pause,
    user_message,
)
from tests.support.wire_checks import assert_answers

from holdfast.testing import HttpError, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

FREE = ToolCall("whisper", {"text": "psst"}, id="call_free")


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> AgentState:
    held = make_tool(SHOUT, default_requires_approval=True)
    return make_agent(tool_ids=[held.id, make_tool(WHISPER).id], parallel_tool_calls=True)


@pytest.fixture
def answered(client: Letta, provider: ScriptedProvider, agent: AgentState) -> dict[str, Any]:
    """An approval request that was answered long ago, of a batch that also had an automatic call."""
    *_, request = pause(client, provider, agent.id, CALL, FREE)
    provider.script("Done.")
    answer(client, agent.id, allow())
    return request


def results(client: Letta, agent_id: str) -> list[dict[str, Any]]:
    return [
        row for row in history(client, agent_id) if row["message_type"] == "tool_return_message"
    ]


@pytest.mark.parametrize("by", ["call", "request"])
def test_an_answer_that_comes_again_runs_nothing_again_and_goes_on(
    client: Letta,
    provider: ScriptedProvider,
    agent: AgentState,
    answered: dict[str, Any],
    by: str,
) -> None:
    provider.script("Where was I?")

    messages = answer(client, agent.id, allow(CALL.id if by == "call" else answered["id"]))

    assert [row["content"] for row in messages] == ["Where was I?"]
    assert "keep-alive" in message_texts(client, agent.id)[-2]
    assert "keep-alive" in provider.requests[-1].user_text
    assert len(results(client, agent.id)) == 1
    assert_answers(client, provider, agent.id)


def test_what_is_said_along_with_it_takes_the_place_of_the_keep_alive(
    client: Letta, provider: ScriptedProvider, agent: AgentState, answered: dict[str, Any]
) -> None:
    provider.script("Yes.")

    client.agents.messages.create(
        agent.id, messages=[approval_message(allow()), user_message("Did it work?")]
    )

    assert message_texts(client, agent.id)[-2:] == ["Did it work?", "Yes."]
    assert len(results(client, agent.id)) == 1


def test_an_answer_whose_reply_was_lost_may_be_sent_again(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    """The provider failed right after the call was executed."""
    pause(client, provider, agent.id)
    provider.script(HttpError(400, "TEST: down"))
    with pytest.raises(BadRequestError, match="TEST: down"):
        answer(client, agent.id, allow())
    provider.script("Here I am.")

    items = as_dicts(client.agents.messages.stream(agent.id, messages=[approval_message(allow())]))

    assert_ended(items, "end_turn")
    assert len(results(client, agent.id)) == 1


def test_an_answer_from_before_the_agent_forgot_still_counts(
    client: Letta, provider: ScriptedProvider, agent: AgentState, answered: dict[str, Any]
) -> None:
    client.agents.messages.reset(agent.id, add_default_initial_messages=False)
    provider.script("Hello.")

    messages = answer(client, agent.id, allow())

    assert messages[-1]["content"] == "Hello."


@pytest.mark.parametrize("entries", [[allow("other")], [allow(), allow("other")]])
def test_an_answer_to_calls_that_never_were_is_no_repetition(
    client: Letta,
    agent: AgentState,
    answered: dict[str, Any],
    entries: list[dict[str, Any]],
) -> None:
    with pytest.raises(BadRequestError, match="No tool call is currently awaiting approval"):
        answer(client, agent.id, *entries)

    assert len(client.runs.list(agent_id=agent.id).items) == 2


def test_of_two_answers_at_once_one_is_executed_and_the_other_is_refused(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    pool: ThreadPoolExecutor,
    server: ServerProcess,
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(WAIT_AT_GATE, default_requires_approval=True).id])
    log = server.tool_files / f"log of {agent.id}"
    with ToolGate() as door:
        call = ToolCall("wait_at_gate", {"port": door.port, "log": str(log)}, id="call_wait")
        pause(client, provider, agent.id, call)
        provider.script("Done.")
        first = pool.submit(answer, client, agent.id, allow(call.id))
        with door.wait_for_tool():
            running = client.runs.list(agent_id=agent.id).items[0]
            with pytest.raises(BadRequestError, match=f"{running.id} was first to answer"):
                answer(client, agent.id, allow(call.id))
            with pytest.raises(ConflictError, match=f"{call.id} was approved by user-"):
                answer(client, agent.id, deny(call.id))
        assert first.result(timeout=30)[0]["tool_return"] == "came in"
    assert log.read_text() == "entered\n"
    assert_answers(client, provider, agent.id)


def test_of_many_answers_at_once_one_is_carried_out(
    client: Letta, provider: ScriptedProvider, agent: AgentState, pool: ThreadPoolExecutor
) -> None:
    pause(client, provider, agent.id)
    provider.respond_with(lambda _request: "Done.")

    def send_answer(_number: int) -> str:
        try:
            return str(answer(client, agent.id, allow())[0]["message_type"])
        except BadRequestError as refused:
            return str(refused.response.json()["detail"])

    outcomes = list(pool.map(send_answer, range(6)))

    assert outcomes.count("tool_return_message") == 1
    others = [outcome for outcome in outcomes if not outcome.endswith("_message")]
    assert all("No tool call is currently awaiting approval" in outcome for outcome in others)
    assert len(results(client, agent.id)) == 1
    provider.reset()
    assert_answers(client, provider, agent.id)
