"""Approval requests as the inbox shows them. Not in V1."""

from collections.abc import Mapping, Sequence

from holdfast.core.deadlines import Deadline
from holdfast.core.messages import Decision, Message, conversation_id
from holdfast.http.letta_v1.schemas.approvals import Approval, CallDeadline
from holdfast.http.letta_v1.to_wire.messages import api_call, api_decision


def api_approval(
    row: Message,
    *,
    waiting_run_id: str | None,
    decided: Sequence[Decision],
    deadlines: Mapping[str, Deadline],
) -> Approval:
    return Approval(
        id=row.id,
        status="pending" if waiting_run_id else "decided",
        agent_id=row.agent_id,
        conversation_id=conversation_id(row.thread_id, row.agent_id),
        run_id=row.run_id,
        step_id=row.step_id,
        waiting_run_id=waiting_run_id,
        created_at=row.created_at,
        tool_calls=[api_call(call) for call in row.tool_calls],
        approvals=[api_decision(item) for item in decided],
        expires_at=min((deadline.at for deadline in deadlines.values()), default=None),
        deadlines=[
            CallDeadline(tool_call_id=call_id, expires_at=item.at, on_timeout=item.outcome)
            for call_id, item in deadlines.items()
        ],
    )
