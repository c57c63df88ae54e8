"""A run's explanation, with the requests that would help spelled out."""

from typing import Any

from holdfast.core.explanation import (
    AwaitedCall,
    Cancel,
    Decide,
    Explanation,
    Phase,
    Remedy,
    Return,
)
from holdfast.core.messages import conversation_id
from holdfast.http.letta_v1.schemas import explanation as wire
from holdfast.http.letta_v1.to_wire.replies import error_message
from holdfast.http.letta_v1.to_wire.runs import STATUSES, token_usage
from holdfast.http.letta_v1.to_wire.steps import api_step
from holdfast.usecases.explaining import Explained

_ANYBODY = "anyone who may use this server"
_THE_CLIENT = "the client that offered the tool"
# Where the caller's own words belong.
_BLANK = "…"


def api_explanation(found: Explained) -> wire.Explanation:
    run, told = found.run, found.explanation
    return wire.Explanation(
        run_id=run.id,
        agent_id=run.agent_id,
        conversation_id=conversation_id(run.thread_id, run.agent_id),
        status=STATUSES[run.status],
        phase=told.phase,
        summary=told.summary,
        since=told.since,
        waits_for=wire.WaitsFor(
            runs=list(told.behind),
            model=told.model,
            tool_calls=[_call(call, told) for call in told.calls],
            approval_id=told.request_id,
        ),
        by_itself=told.by_itself,
        unblock=[_request(remedy) for remedy in told.remedies],
        stop_reason=run.stop_reason,
        error=error_message(run.id, run.failure) if run.failure else None,
        cancellation=run.cancellation,
        num_steps=run.num_steps,
        failed_attempts=api_step(found.step).attempts if found.step else [],
        recoveries=run.progress.recoveries,
        lease=wire.Lease(held_here=found.carried),
        usage=token_usage(run.usage, found.costs),
        created_at=run.created_at,
        started_at=run.started_at,
        completed_at=run.completed_at,
    )


def _call(call: AwaitedCall, told: Explanation) -> wire.AwaitedCall:
    shown = wire.AwaitedCall(
        tool_call_id=call.id, name=call.name, needs="returned" if call.settled else "running"
    )
    if told.phase is not Phase.WAITING_FOR_APPROVAL:
        return shown
    return wire.AwaitedCall(
        tool_call_id=call.id,
        name=call.name,
        needs="result" if call.by_client else "decision",
        answered_by=_THE_CLIENT if call.by_client else _ANYBODY,
        expires_at=call.deadline.at if call.deadline else None,
        on_timeout=call.deadline.outcome if call.deadline else None,
    )


def _request(remedy: Remedy) -> wire.HttpCall:
    match remedy:
        case Cancel(run_id=run_id):
            return _post(remedy, f"runs/{run_id}/cancel", {})
        case Decide(request_id=request_id, approve=True):
            return _post(remedy, f"approvals/{request_id}", {"approve": True})
        case Decide(request_id=request_id):
            return _post(remedy, f"approvals/{request_id}", {"approve": False, "reason": _BLANK})
        case Return(request_id=request_id):
            return _post(remedy, f"approvals/{request_id}", {"approvals": _entries(remedy)})


def _post(remedy: Remedy, path: str, body: dict[str, Any]) -> wire.HttpCall:
    return wire.HttpCall(effect=remedy.effect, method="POST", path=f"/v1/{path}", body=body)


def _entries(remedy: Return) -> list[dict[str, Any]]:
    results = [
        {"type": "tool", "tool_call_id": call_id, "tool_return": _BLANK, "status": "success"}
        for call_id in remedy.call_ids
    ]
    approved = [
        {"type": "approval", "tool_call_id": call_id, "approve": True}
        for call_id in remedy.approved_ids
    ]
    return [*results, *approved]
