"""How to unblock a pending approval, as part of the error. V1's sentence comes first: clients may search for it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import AnswerMismatch, CallerError, PendingApproval
from holdfast.http.letta_v1.schemas.errors import (
    MismatchProblem,
    PendingApprovalDetail,
    PendingCall,
)


def unblock_body(calls: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The body of a send that approves these calls."""
    approvals = [
        {"type": "approval", "tool_call_id": call_id, "approve": True} for call_id, _ in calls
    ]
    return {"messages": [{"type": "approval", "approvals": approvals}]}


def unblock_hint(pending_request_id: str | None, calls: Sequence[tuple[str, str]]) -> str:
    """Which calls wait and what to send. Empty if no call waits."""
    if not calls:
        return ""
    body = msgspec.json.encode(unblock_body(calls)).decode()
    return (
        f' Waiting: {_list_calls(calls)}. To go on, send {body} to the same address, with "approve": false to deny; '
        f'or POST {{"approve": true}} to /v1/approvals/{pending_request_id}; or cancel the run.'
    )


def describe_error(error: CallerError) -> str:
    """The error's text, and how to unblock it if that is possible."""
    match error:
        case PendingApproval():
            return f"{error}{unblock_hint(error.pending_request_id, error.calls)}"
        case AnswerMismatch():
            # V1's sentence quotes with ', and the SDK shows a text that has both kinds of quotes with \\' for ':
            # to keep the sentence unchanged there, no " follows it.
            return (
                f"{error} Waiting: {_list_calls(error.calls)}. Name each of these once, with approve true or false, "
                f"or its result; or POST approve=true to /v1/approvals/{error.pending_request_id}."
            )
        case _:
            return str(error)


def pending_detail(error: PendingApproval, prefix: str) -> PendingApprovalDetail:
    detail = PendingApprovalDetail(
        code="PENDING_APPROVAL",
        message=f"{prefix}{describe_error(error)}",
        pending_request_id=error.pending_request_id,
    )
    if not error.calls:
        return detail
    return msgspec.structs.replace(
        detail, pending_calls=_pending_calls(error.calls), unblock=unblock_body(error.calls)
    )


def mismatch_problem(error: AnswerMismatch) -> MismatchProblem:
    return MismatchProblem(
        detail=describe_error(error),
        pending_request_id=error.pending_request_id,
        pending_calls=_pending_calls(error.calls),
        unblock=unblock_body(error.calls),
    )


def _list_calls(calls: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({call_id})" for call_id, name in calls)


def _pending_calls(calls: Sequence[tuple[str, str]]) -> list[PendingCall]:
    return [PendingCall(tool_call_id=call_id, name=name) for call_id, name in calls]
