"""Agents, runs and approvals as this wire shows them, in its tools and its resources alike."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from holdfast.core import agents, runs
from holdfast.core.approvals import describe_decision
from holdfast.core.deadlines import Deadline
from holdfast.core.messages import Decision, Message, conversation_id

# Longer texts are cut, and end with a sentence that says so.
MAX_TEXT_CHARS: Final = 4_000
MAX_ANSWER_CHARS: Final = 100_000


class AgentSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    description: str | None = None


class RunSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    agent_id: str
    # None: the agent's default conversation.
    conversation_id: str | None = None
    status: str
    stop_reason: str | None = None
    created_at: datetime
    completed_at: datetime | None = None


class HeldCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call of a request for approval. ``arguments`` is JSON, as the model wrote it."""

    id: str
    tool: str
    arguments: str
    # Only the client that offered the tool can answer: with a result, by the API.
    needs_result: bool = False
    # What was decided, by whom and when.
    decision: str | None = None
    expires_at: datetime | None = None


class ApprovalSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    agent_id: str
    conversation_id: str | None = None
    # ``pending`` or ``decided``.
    status: str
    # The run that waits for the decisions.
    run_id: str | None = None
    created_at: datetime
    calls: tuple[HeldCall, ...] = ()


def agent_summary(agent: agents.Agent) -> AgentSummary:
    return AgentSummary(
        id=agent.id,
        name=agent.name,
        description=cut(agent.description) if agent.description else None,
    )


def run_summary(run: runs.Run) -> RunSummary:
    return RunSummary(
        id=run.id,
        agent_id=run.agent_id,
        conversation_id=conversation_id(run.thread_id, run.agent_id),
        status=run.status.value,
        stop_reason=run.stop_reason and run.stop_reason.value,
        created_at=run.created_at,
        completed_at=run.completed_at,
    )


def approval_summary(
    row: Message,
    *,
    run_id: str | None,
    decisions: Sequence[Decision],
    deadlines: Mapping[str, Deadline],
    client_tools: Collection[str] = (),
) -> ApprovalSummary:
    decided = {item.call_id: describe_decision(item) for item in decisions}
    calls = (
        HeldCall(
            id=call.id,
            tool=call.name,
            arguments=cut(call.arguments),
            needs_result=call.name in client_tools,
            decision=decided.get(call.id),
            expires_at=deadlines[call.id].at if call.id in deadlines else None,
        )
        for call in row.tool_calls
    )
    return ApprovalSummary(
        id=row.id,
        agent_id=row.agent_id,
        conversation_id=conversation_id(row.thread_id, row.agent_id),
        status="pending" if run_id else "decided",
        run_id=run_id,
        created_at=row.created_at,
        calls=tuple(calls),
    )


def cut(text: str, most: int = MAX_TEXT_CHARS) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}… (cut: {most:,} of {len(text):,} characters)"
