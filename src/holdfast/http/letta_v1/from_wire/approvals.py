"""Decisions about tool calls (wire-v1 §6.3)."""

from collections.abc import Sequence

from holdfast.core.messages import (
    Decision,
    Outcome,
    ToolReturn,
)
from holdfast.errors import Unprocessable
from holdfast.http.letta_v1.from_wire.content import parse_parts
from holdfast.http.letta_v1.schemas import send as wire
from holdfast.http.letta_v1.schemas.approvals import DecideBody


def approval_decisions(body: DecideBody, calls: Sequence[str]) -> list[Decision]:
    """The decisions of a body about a request with these calls."""
    if (body.approve is None) is (body.approvals is None):
        raise Unprocessable("Send either 'approve', for all calls, or 'approvals', one for each.")
    if body.approve is not None:
        return [
            Decision(call_id, body.approve, body.reason, decided_by=body.decided_by)
            for call_id in calls
        ]
    return [parse_entry(entry, body.decided_by) for entry in body.approvals or ()]


def parse_entry(entry: wire.Entry, decided_by: str | None) -> Decision:
    """``decided_by`` is used unless the entry has its own."""
    if isinstance(entry, wire.ToolReturnEntry):
        return parse_tool_return(entry, decided_by)
    if entry.arguments is not None and not entry.approve:
        raise Unprocessable("'arguments' are for a call that is approved; this one is denied.")
    return Decision(
        entry.tool_call_id,
        entry.approve,
        entry.reason,
        decided_by=entry.decided_by or decided_by,
        arguments=entry.arguments,
    )


def parse_tool_return(entry: wire.ToolReturnEntry, decided_by: str | None = None) -> Decision:
    """A result means that the client ran the call itself, so the server must not run it."""
    outcome = Outcome.FINISHED if entry.status == "success" else Outcome.FAILED
    returned = ToolReturn(
        call_id=entry.tool_call_id,
        name=None,
        outcome=outcome,
        content=parse_parts(entry.tool_return),
        stdout=tuple(entry.stdout or ()),
        stderr=tuple(entry.stderr or ()),
    )
    return Decision(
        entry.tool_call_id,
        approve=False,
        returned=returned,
        decided_by=entry.decided_by or decided_by,
    )
