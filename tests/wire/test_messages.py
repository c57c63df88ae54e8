"""Sending a message and waiting for the reply (wire-v1 §2.3, §7.4-§7.7, §7.10)."""

from datetime import timedelta
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from tests.support.client_objects import (
    as_dict,
    as_dicts,
    eventually,
    history,
    kinds,
    message_texts,
)
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import SHOUT, WAIT_AT_GATE

from holdfast.testing import Answer, RedactedThinking, ScriptedProvider, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow


@pytest.mark.wire(146)
def test_a_plain_answer_ends_the_turn(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script("Hello, you.")

    reply = client.agents.messages.create(agent.id, input="Hello?")

    (answer,) = as_dicts(reply.messages)
    assert answer["message_type"] == "assistant_message"
    assert answer["content"] == "Hello, you."
    assert answer["run_id"].startswith("run-")
    assert answer["step_id"].startswith("step-")
    assert answer["date"].utcoffset() == timedelta(0)
    assert as_dict(reply.stop_reason) == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert provider.requests[-1].user_text == "Hello?"
    assert provider.requests[-1].model == model.partition("/")[2]
    assert message_texts(client, agent.id) == ["Hello?", "Hello, you."]


def test_the_model_sees_the_system_message_and_what_was_said_before(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent(
        system="You are Ada.", memory_blocks=[{"label": "human", "value": "Likes tea."}]
    )
    provider.script("One.", "Two.")

    client.agents.messages.create(agent.id, input="First")
    client.agents.messages.create(agent.id, input="Second")

    seen = str(provider.requests[-1].body)
    assert "You are Ada." in seen
    assert "Likes tea." in seen
    assert seen.index("First") < seen.index("One.") < seen.index("Second")


def test_thinking_comes_first_and_shares_the_id_of_the_answer(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script(Answer(Thinking("Let me see."), "It is so."))

    reply = client.agents.messages.create(agent.id, input="Is it so?")

    thought, answer = as_dicts(reply.messages)
    assert thought["message_type"] == "reasoning_message"
    assert thought["reasoning"] == "Let me see."
    assert thought["source"] == "reasoner_model"
    assert answer["content"] == "It is so."
    assert thought["id"] == answer["id"]
    # Both otids come from the row's id; the last digit is the position (wire-v1 §1.8).
    assert (thought["otid"][-1], answer["otid"][-1]) == ("0", "1")


def test_hidden_thinking_is_shown_as_hidden(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(model="anthropic/claude-sonnet-4-5")
    provider.script(Answer(RedactedThinking("c2VjcmV0"), "Done."))

    reply = client.agents.messages.create(agent.id, input="Think.")

    hidden, _ = as_dicts(reply.messages)
    assert hidden["message_type"] == "hidden_reasoning_message"
    assert hidden["state"] == "redacted"


def test_anthropic_gets_its_own_thinking_back_in_a_tool_loop(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(
        model="anthropic/claude-sonnet-4-5",
        model_settings={
            "provider_type": "anthropic",
            "thinking": {"type": "enabled", "budget_tokens": 2048},
        },
        tool_ids=[make_tool(SHOUT).id],
    )
    provider.script(
        Answer(Thinking("Loudly, then.", signature="c2lnbmVk"), ToolCall("shout", {"text": "hi"})),
        "Done.",
    )

    client.agents.messages.create(agent.id, input="Shout hi")

    first, second = provider.requests
    assert first.body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    (answered,) = [message for message in second.messages if message["role"] == "assistant"]
    assert answered["content"][0] == {
        "type": "thinking",
        "thinking": "Loudly, then.",
        "signature": "c2lnbmVk",
    }


@pytest.mark.wire(150)
def test_usage_adds_up_over_the_steps_and_what_was_not_reported_is_null(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(model="anthropic/claude-sonnet-4-5", tool_ids=[make_tool(SHOUT).id])
    provider.script(
        Answer(
            ToolCall("shout", {"text": "a"}),
            usage=Usage(input_tokens=100, output_tokens=20, cached_input_tokens=30),
        ),
        Answer("Done.", usage=Usage(input_tokens=200, output_tokens=7, cached_input_tokens=50)),
    )

    usage = as_dict(client.agents.messages.create(agent.id, input="Count").usage)

    assert usage["prompt_tokens"] == 300
    assert usage["completion_tokens"] == 27
    assert usage["total_tokens"] == 327
    assert usage["step_count"] == 2
    assert usage["cached_input_tokens"] == 80
    assert usage["context_tokens"] == 207
    assert usage["reasoning_tokens"] is None


def test_an_answer_that_was_cut_off_fails_with_max_tokens_exceeded(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script(Answer("Once upon a", finish="length"))

    reply = client.agents.messages.create(agent.id, input="A story")

    assert as_dict(reply.stop_reason)["stop_reason"] == "max_tokens_exceeded"
    assert client.runs.list(agent_id=agent.id).items[0].status == "failed"


@pytest.mark.wire(74)
def test_one_otid_may_be_used_for_two_sends(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script("One.", "Two.")
    message: Any = {
        "role": "user",
        "content": "Again",
        "otid": "11111111-2222-4333-8444-555555555555",
    }

    for _ in range(2):
        client.agents.messages.create(agent.id, messages=[message])

    rows = history(client, agent.id)
    assert [row.get("content") for row in rows] == ["Again", "One.", "Again", "Two."]
    assert {row["otid"] for row in rows[::2]} == {message["otid"]}


def test_content_parts_and_several_messages_are_one_request(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent()
    provider.script("Both.")

    client.agents.messages.create(
        agent.id,
        messages=[
            {"role": "system", "content": "The building is on fire."},
            {"role": "user", "content": [{"type": "text", "text": "What do I do?"}]},
        ],
    )

    assert "What do I do?" in str(provider.requests[-1].messages)
    assert "on fire" in str(provider.requests[-1].body)
    assert len(history(client, agent.id)) == 2  # the system text of the caller is a system message


def test_another_model_and_another_system_text_hold_for_one_request(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(model="openai/gpt-4o-mini", system="Be yourself.")

    client.agents.messages.create(
        agent.id,
        input="Who are you?",
        override_model="anthropic/claude-haiku-4-5",
        override_system="Be a pirate.",
    )
    client.agents.messages.create(agent.id, input="And now?")

    other, own = provider.requests
    assert (other.wire, other.model) == ("anthropic", "claude-haiku-4-5")
    assert "Be a pirate." in str(other.body)
    assert "Be yourself." not in str(other.body)
    assert (own.wire, own.model) == ("openai-chat", "gpt-4o-mini")
    assert "Be yourself." in str(own.body)


@pytest.mark.both_databases
@pytest.mark.wire(131)
def test_the_wished_message_types_are_shown_and_all_are_stored(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(Answer(Thinking("Hm."), ToolCall("shout", {"text": "x"})), "Done.")

    reply = client.agents.messages.create(
        agent.id, input="Shout", include_return_message_types=["assistant_message"]
    )

    assert kinds(reply.messages) == ["assistant_message"]
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    (run,) = client.runs.list(agent_id=agent.id).items
    assert as_dicts(client.runs.messages.list(run.id).items) == as_dicts(reply.messages)
    assert [row["message_type"] for row in history(client, agent.id)] == [
        "user_message",
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]


def test_an_agent_that_forgets_sees_only_its_system_message(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent(message_buffer_autoclear=True)
    provider.script("One.", "Two.")

    client.agents.messages.create(agent.id, input="First")
    client.agents.messages.create(agent.id, input="Second")

    assert "First" not in str(provider.requests[-1].messages)
    assert message_texts(client, agent.id) == ["First", "One.", "Second", "Two."]


def test_a_caller_who_leaves_does_not_end_the_run(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
) -> None:
    with ToolGate() as door:
        agent = make_agent(tool_ids=[make_tool(WAIT_AT_GATE).id])
        provider.script(
            Answer(ToolCall("wait_at_gate", {"port": door.port, "log": "log"})),
            "Done.",
        )
        caller = HTTPConnection(client.base_url.host, client.base_url.port)
        caller.request("POST", f"/v1/agents/{agent.id}/messages", body=b'{"input": "Wait"}')
        with door.wait_for_tool():
            caller.close()

    eventually(lambda: message_texts(client, agent.id), lambda texts: texts[-1:] == ["Done."])
