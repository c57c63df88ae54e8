"""What a cancel leaves behind: a receipt, and a result for every call that was open."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.core.messages import (
    CallState,
    Decision,
    Message,
    OpenCall,
    Outcome,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)

# The words are part of the contract (wire-v1 §6.7).
DENIED_ON_CANCEL = "The user cancelled the request, so the tool call was denied."

_WHAT_BECAME = {
    Outcome.NOT_STARTED: "The run {how} before this tool was started.",
    Outcome.KILLED: "The run {how} while this tool was running; it was killed.",
}
_NOT_KNOWN = "The run ended before this tool returned: {outcome}."


class Action(StrEnum):
    """What becomes of the run's messages: they stay, or the thread forgets them."""

    KEEP = "keep"
    ROLLBACK = "rollback"


class Cancellation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The receipt: who asked, when and why, where the run was, and what became of its open calls."""

    requested_at: datetime
    requested_by: str
    reason: str | None = None
    action: Action = Action.KEEP
    phase: str | None = None
    calls: Mapping[str, Outcome] = {}


def result_of(item: OpenCall, outcome: Outcome, how: str = "was cancelled") -> ToolReturn:
    """The result on record, or one that says what became of the call, and how the run ended."""
    if item.result is not None:
        return item.result
    text = _WHAT_BECAME.get(outcome, _NOT_KNOWN).format(how=how, outcome=outcome)
    return ToolReturn(
        call_id=item.call.id, name=item.call.name, outcome=outcome, content=(Text(text),)
    )


def without(context: Sequence[Message], run_id: str) -> list[str]:
    """The ids of the context when the run is forgotten: all but its rows. What answers the calls of another
    run is that run's as well, and stays; so does a summary, which tells of what others said."""
    foreign = {call.id for row in context if row.run_id != run_id for call in row.tool_calls}
    return [
        row.id
        for row in context
        if row.run_id != run_id or row.role is Role.SUMMARY or _answers(row) & foreign
    ]


def _answers(row: Message) -> set[str]:
    returns = {item.call_id for item in row.tool_returns}
    return returns | {decision.call_id for decision in row.decisions}


def _unexecuted(item: OpenCall, decision: Decision | None) -> ToolReturn:
    if decision is None:
        return denied(item.call, DENIED_ON_CANCEL)
    if decision.approve:
        return result_of(item, Outcome.NOT_STARTED)
    return decision.returned or denied(item.call, decision.reason)


def denied(call: ToolCall, reason: str | None) -> ToolReturn:
    """The result of a call that a person refused (wire-v1 §6.3)."""
    text = f"Error: request to call tool denied. User reason: {reason}"
    return ToolReturn(call.id, call.name, Outcome.DENIED, (Text(text),))


def denial_rows(
    calls: Sequence[OpenCall],
    run_id: str,
    row_ids: tuple[str, str],
    now: datetime,
    *,
    home: Message,
    before: Mapping[str, Decision],
) -> tuple[Message, Message]:
    """The answer to held calls whose run was cancelled, and the results of all calls (wire-v1 §6.7). What persons
    decided ``before`` stands: nobody decides twice.

    ``home`` is the row that asked for the approval.
    """
    decisions = tuple(
        Decision(call_id=item.call.id, approve=False, reason=DENIED_ON_CANCEL)
        for item in calls
        if item.state is CallState.HELD and item.call.id not in before
    )
    returns = tuple(_unexecuted(item, before.get(item.call.id)) for item in calls)
    response = Message(
        id=row_ids[0],
        agent_id=home.agent_id,
        thread_id=home.thread_id,
        role=Role.APPROVAL,
        created_at=now,
        decisions=decisions,
        run_id=run_id,
        step_id=home.step_id,
    )
    results = Message(
        id=row_ids[1],
        agent_id=home.agent_id,
        thread_id=home.thread_id,
        role=Role.TOOL,
        created_at=now,
        tool_returns=returns,
        run_id=run_id,
        step_id=home.step_id,
    )
    return response, results
