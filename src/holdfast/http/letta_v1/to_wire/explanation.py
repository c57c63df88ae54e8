"""A run's explanation, with the HTTP requests that would unblock it."""

from typing import Any

from holdfast.core.explanation import (
    AwaitedCall,
    Cancel,
    Decide,
    Explanation,
    Phase,
    Remedy,
    SendResults,
)
from holdfast.core.messages import conversation_id
from holdfast.http.letta_v1.schemas import explanation as wire
from holdfast.http.letta_v1.to_wire.replies import error_message
from holdfast.http.letta_v1.to_wire.runs import STATUSES, token_usage
from holdfast.http.letta_v1.to_wire.steps import api_step
from holdfast.usecases.explanation import ExplainedRun

_ANY_USER = "anyone who may use this server"
_TOOL_CLIENT = "the client that offered the tool"
# The caller puts its own text here.
_PLACEHOLDER = "…"


def api_explanation(found: ExplainedRun) -> wire.Explanation:
    run, explanation = found.run, found.explanation
    return wire.Explanation(
        run_id=run.id,
        agent_id=run.agent_id,
        conversation_id=conversation_id(run.thread_id, run.agent_id),
        status=STATUSES[run.status],
        phase=explanation.phase,
        summary=explanation.summary,
        since=explanation.since,
        waits_for=wire.WaitsFor(
            runs=list(explanation.runs_ahead),
            model=explanation.model,
            tool_calls=[_awaited_call(call, explanation) for call in explanation.calls],
            approval_id=explanation.request_id,
        ),
        by_itself=explanation.by_itself,
        unblock=[_unblock_request(remedy) for remedy in explanation.remedies],
        stop_reason=run.stop_reason,
        error=error_message(run.id, run.failure) if run.failure else None,
        cancellation=run.cancellation,
        num_steps=run.num_steps,
        failed_attempts=api_step(found.step).attempts if found.step else [],
        recoveries=run.progress.recoveries,
        lease=_lease(found),
        usage=token_usage(run.usage, found.costs),
        created_at=run.created_at,
        started_at=run.started_at,
        completed_at=run.completed_at,
    )


def _lease(found: ExplainedRun) -> wire.Lease:
    owner = found.owner
    is_valid = owner is not None and owner.is_alive
    return wire.Lease(
        held_here=owner is not None and is_valid and owner.is_this,
        expires_at=owner.lease_ends_at if owner else None,
        is_valid=is_valid,
        server_id=owner.server_id if owner else None,
        host=owner.host if owner else None,
        fence=found.run.fence,
    )


def _awaited_call(call: AwaitedCall, explanation: Explanation) -> wire.AwaitedCall:
    shown = wire.AwaitedCall(
        tool_call_id=call.id, name=call.name, needs="returned" if call.has_result else "running"
    )
    if explanation.phase is not Phase.WAITING_FOR_APPROVAL:
        return shown
    return wire.AwaitedCall(
        tool_call_id=call.id,
        name=call.name,
        needs="result" if call.runs_on_client else "decision",
        answered_by=_TOOL_CLIENT if call.runs_on_client else _ANY_USER,
        expires_at=call.deadline.at if call.deadline else None,
        on_timeout=call.deadline.outcome if call.deadline else None,
    )


def _unblock_request(remedy: Remedy) -> wire.HttpCall:
    match remedy:
        case Cancel(run_id=run_id):
            return _post(remedy, f"runs/{run_id}/cancel", {})
        case Decide(request_id=request_id, approve=True):
            return _post(remedy, f"approvals/{request_id}", {"approve": True})
        case Decide(request_id=request_id):
            return _post(
                remedy, f"approvals/{request_id}", {"approve": False, "reason": _PLACEHOLDER}
            )
        case SendResults(request_id=request_id):
            return _post(
                remedy, f"approvals/{request_id}", {"approvals": _approval_entries(remedy)}
            )


def _post(remedy: Remedy, path: str, body: dict[str, Any]) -> wire.HttpCall:
    return wire.HttpCall(effect=remedy.effect, method="POST", path=f"/v1/{path}", body=body)


def _approval_entries(remedy: SendResults) -> list[dict[str, Any]]:
    results = [
        {"type": "tool", "tool_call_id": call_id, "tool_return": _PLACEHOLDER, "status": "success"}
        for call_id in remedy.call_ids
    ]
    approved = [
        {"type": "approval", "tool_call_id": call_id, "approve": True}
        for call_id in remedy.approved_ids
    ]
    return [*results, *approved]
