"""Agents that wait for a person, and the answers to them (wire-v1 §6)."""

from typing import Any

import httpx
from letta_client import Letta
from tests.support.client_objects import as_dict, as_dicts

from holdfast.testing import Answer, ScriptedProvider, Thinking, ToolCall

CALL = ToolCall("shout", {"text": "hi"}, id="call_held")


def allow(call_id: str | None = CALL.id, **more: Any) -> dict[str, Any]:
    return {"type": "approval", "tool_call_id": call_id, "approve": True} | more


def deny(call_id: str | None = CALL.id, **more: Any) -> dict[str, Any]:
    return allow(call_id, approve=False, **more)


def client_result(call_id: str | None = CALL.id, **more: Any) -> dict[str, Any]:
    """What a client says that ran the call itself."""
    return {
        "type": "tool",
        "tool_call_id": call_id,
        "tool_return": "mine",
        "status": "success",
    } | more


def approval_message(*entries: dict[str, Any]) -> Any:
    return {"type": "approval", "approvals": list(entries)}


def thinking_answer(text: str) -> Answer:
    """Every answer of the model begins with a thought."""
    return Answer(Thinking("Let me see."), text)


def pause(
    client: Letta, provider: ScriptedProvider, agent_id: str, *calls: ToolCall, **request: Any
) -> list[dict[str, Any]]:
    """Have the model ask for these calls (or one) of which at least one is held; what was shown."""
    provider.script(Answer(Thinking("May I?"), *(calls or (CALL,))))
    reply = client.agents.messages.create(agent_id, input="Go on", **request)
    assert as_dict(reply.stop_reason)["stop_reason"] == "requires_approval"
    messages = as_dicts(reply.messages)
    assert messages[-1]["message_type"] == "approval_request_message"
    return messages


def answer(
    client: Letta, agent_id: str, *entries: dict[str, Any], **request: Any
) -> list[dict[str, Any]]:
    reply = client.agents.messages.create(
        agent_id, messages=[approval_message(*entries)], **request
    )
    return as_dicts(reply.messages)


def user_message(text: str) -> Any:
    return {"role": "user", "content": text}


def assert_context_works(http: httpx.Client, agent_id: str) -> None:
    found = http.get(f"/v1/agents/{agent_id}/context")
    assert found.status_code == 200, found.text
    assert found.json()["num_messages"] >= 1
