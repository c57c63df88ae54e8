"""Budgets of a request, through the official client: not in V1, so they are sent as ``extra_body`` (wire-v1 §2.3.1)."""

from typing import TYPE_CHECKING, Any

import pytest
from letta_client import BadRequestError, Letta, UnprocessableEntityError
from tests.support.client_objects import as_dict, as_dicts, eventually, message_texts
from tests.support.stream_items import text_of
from tests.support.tool_sources import WAIT_AT_GATE
from tests.support.wire_checks import assert_answers

from holdfast.testing import Answer, Gate, ScriptedProvider, ToolCall, Usage

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning"),
]

# More than the estimated prompt of a new agent, and far less than the first part of the answer.
TOKENS = {"max_total_tokens": 1_500}
FIRST_PART = "word " * 2_000


def endless_answer() -> Answer:
    """An answer whose rest never comes: what is over the budget may arrive in one read, so the gate keeps it partial."""
    return Answer(FIRST_PART, Gate("never released"), "the end")


@pytest.fixture
def agent(make_agent: "MakeAgent") -> "AgentState":
    return make_agent()


def only_run(client: Letta, agent_id: str) -> dict[str, Any]:
    """The agent's run, once it has ended."""
    return eventually(
        lambda: as_dict(client.runs.list(agent_id=agent_id).items[0]),
        lambda run: run["completed_at"] is not None,
    )


def assert_out_of_tokens(client: Letta, provider: ScriptedProvider, agent_id: str) -> None:
    run = only_run(client, agent_id)
    assert (run["status"], run["stop_reason"]) == ("failed", "max_tokens_exceeded")
    budget = run["metadata"]["budget"]
    assert (budget["limit"], budget["value"]) == ("max_total_tokens", 1_500)
    assert budget["used"] > 1_500
    assert budget["estimated"] is True
    assert "error" not in run["metadata"]
    (step,) = client.runs.steps.list(run["id"]).items
    assert as_dict(step)["status"] == "cancelled"
    question, answer = message_texts(client, agent_id)
    assert question == "Tell me a story."
    assert answer
    assert FIRST_PART.startswith(answer)
    provider.requests[0].finished.block()
    assert provider.requests[0].closed_early
    assert_answers(client, provider, agent_id)


def test_a_waiting_caller_gets_what_there_was(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", model: str
) -> None:
    provider.script(endless_answer())

    reply = client.agents.messages.create(agent.id, input="Tell me a story.", extra_body=TOKENS)

    assert as_dict(reply.stop_reason)["stop_reason"] == "max_tokens_exceeded"
    assert [row["message_type"] for row in as_dicts(reply.messages)] == ["assistant_message"]
    assert_out_of_tokens(client, provider, agent.id)


def test_a_stream_ends_where_the_budget_does(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    provider.script(endless_answer())

    items = as_dicts(
        client.agents.messages.stream(
            agent.id, input="Tell me a story.", stream_tokens=True, extra_body=TOKENS
        )
    )

    assert [item["message_type"] for item in items[-2:]] == ["stop_reason", "usage_statistics"]
    assert items[-2]["stop_reason"] == "max_tokens_exceeded"
    assert text_of(items) == message_texts(client, agent.id)[1]
    assert_out_of_tokens(client, provider, agent.id)


def test_a_run_in_the_background_is_stopped_too(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    provider.script(endless_answer())

    run = client.agents.messages.create_async(
        agent.id, messages=[{"role": "user", "content": "Tell me a story."}], extra_body=TOKENS
    )

    assert run.status == "created"
    assert_out_of_tokens(client, provider, agent.id)


def test_time_that_is_up_is_like_steps_that_are_used_up(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    provider.script(Answer("One two", Gate("never released"), " three."))

    # Long enough for the first words to arrive, also on a busy machine.
    reply = client.agents.messages.create(agent.id, input="Count", extra_body={"max_seconds": 2})

    assert as_dict(reply.stop_reason)["stop_reason"] == "max_steps"
    assert [row["content"] for row in as_dicts(reply.messages)] == ["One two"]
    run = only_run(client, agent.id)
    assert (run["status"], run["stop_reason"]) == ("completed", "max_steps")
    assert run["metadata"]["budget"]["limit"] == "max_seconds"
    assert run["metadata"]["budget"]["used"] >= 2
    assert_answers(client, provider, agent.id)


def test_a_tool_that_has_no_budget_left_is_not_started(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(WAIT_AT_GATE).id])
    provider.script(
        Answer(
            ToolCall("wait_at_gate", {"port": 1}),
            usage=Usage(input_tokens=5_000, output_tokens=500),
        )
    )

    reply = client.agents.messages.create(
        agent.id, input="Wait.", extra_body={"max_total_tokens": 5_200}
    )

    assert as_dict(reply.stop_reason)["stop_reason"] == "max_tokens_exceeded"
    call, result = as_dicts(reply.messages)
    assert (call["message_type"], result["message_type"]) == (
        "tool_call_message",
        "tool_return_message",
    )
    assert result["status"] == "error"
    assert "before this tool was started" in str(result["tool_return"])
    budget = only_run(client, agent.id)["metadata"]["budget"]
    assert budget == {
        "limit": "max_total_tokens",
        "value": 5_200,
        "used": 5_500,
        "estimated": False,
    }
    assert_answers(client, provider, agent.id)


def test_a_cost_of_a_model_without_a_known_price_cannot_be_bounded(
    client: Letta, agent: "AgentState"
) -> None:
    with pytest.raises(BadRequestError, match="the price of openai/gpt-4o-mini is not known"):
        client.agents.messages.create(agent.id, input="Hi", extra_body={"max_cost": 0.01})

    assert client.runs.list(agent_id=agent.id).items == []


@pytest.mark.parametrize(
    "budget", [{"max_total_tokens": 0}, {"max_cost": 0}, {"max_seconds": -1}, {"max_cost": "x"}]
)
def test_a_budget_that_is_none_is_refused(
    client: Letta, agent: "AgentState", budget: dict[str, Any]
) -> None:
    with pytest.raises(UnprocessableEntityError):
        client.agents.messages.create(agent.id, input="Hi", extra_body=budget)
