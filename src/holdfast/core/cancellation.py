"""The receipt of a cancel, the rows that a rollback hides, and the results of calls that did not run."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.core.messages import Message, OpenCall, Outcome, Role, Text, ToolCall, ToolReturn

# The text is part of the wire (wire-v1 §6.7).
DENIED_ON_CANCEL = "The user cancelled the request, so the tool call was denied."

_OUTCOME_TEXTS = {
    Outcome.NOT_STARTED: "The run {how} before this tool was started.",
    Outcome.KILLED: "The run {how} while this tool was running; it was killed.",
}
_UNKNOWN_TEXT = "The run ended before this tool returned: {outcome}."


class Action(StrEnum):
    """What a cancel does with the run's messages and passages: they stay; or the messages leave the context and the
    passages are deleted."""

    KEEP = "keep"
    ROLLBACK = "rollback"


class Cancellation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The receipt: who asked, when and why, what the run was doing, what happened to its open calls, and how many
    passages a rollback deleted."""

    requested_at: datetime
    requested_by: str
    reason: str | None = None
    action: Action = Action.KEEP
    phase: str | None = None
    calls: Mapping[str, Outcome] = {}
    deleted_passages: int = 0


def closing_result(item: OpenCall, outcome: Outcome, how: str = "was cancelled") -> ToolReturn:
    """The result of the call if it has one, else a result that says what happened to it and how the run ended."""
    if item.result is not None:
        return item.result
    text = _OUTCOME_TEXTS.get(outcome, _UNKNOWN_TEXT).format(how=how, outcome=outcome)
    return ToolReturn(
        call_id=item.call.id, name=item.call.name, outcome=outcome, content=(Text(text),)
    )


def forgotten_row_ids(context: Sequence[Message], run_id: str) -> list[str]:
    """The ids of the rows that a rollback hides: those of the run, except answers to the calls of another run, which
    needs them, and summaries, which replace rows of other runs."""
    foreign = {call.id for row in context if row.run_id != run_id for call in row.tool_calls}
    return [
        row.id
        for row in context
        if row.run_id == run_id
        and row.role is not Role.SUMMARY
        and not _answered_call_ids(row) & foreign
    ]


def _answered_call_ids(row: Message) -> set[str]:
    returns = {item.call_id for item in row.tool_returns}
    return returns | {decision.call_id for decision in row.decisions}


def denial_result(call: ToolCall, reason: str | None) -> ToolReturn:
    """The result of a call that was denied (wire-v1 §6.3)."""
    text = f"Error: request to call tool denied. User reason: {reason}"
    return ToolReturn(call.id, call.name, Outcome.DENIED, (Text(text),))
