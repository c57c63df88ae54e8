"""Explaining a run that has ended: why, and what can be done about it."""

from typing import Final

from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.explanation.durations import format_run_time
from holdfast.core.explanation.types import Decide, Explanation, Facts, Phase, Remedy
from holdfast.core.runs import Run, RunStatus, StopReason

# Why a run ended without an error.
_STOP_REASON_TEXTS: Final = {
    StopReason.END_TURN: "the model ended its turn",
    StopReason.TOOL_RULE: "a tool rule ended it",
    StopReason.MAX_STEPS: "it reached its maximum number of steps",
    StopReason.REQUIRES_APPROVAL: "it needed an approval",
    StopReason.MAX_TOKENS_EXCEEDED: "the model's answer was cut off at its maximum length (max_output_tokens)",
    StopReason.INVALID_TOOL_CALL: "a tool rule sets arguments that its tool does not have",
}


def explain_ended(facts: Facts) -> Explanation:
    run = facts.run
    return Explanation(
        phase=Phase.ENDED,
        summary=_describe_end(facts),
        since=run.completed_at,
        remedies=_remedies_after_end(facts),
    )


def _describe_end(facts: Facts) -> str:
    run = facts.run
    steps = f"{run.num_steps} step{'' if run.num_steps == 1 else 's'}"
    spent = f"after {format_run_time(run)} and {steps}"
    if run.status is RunStatus.CANCELLED:
        return _describe_cancellation(run.cancellation, spent)
    if run.failure is not None:
        why = " ".join(filter(None, (run.failure.message, run.failure.detail)))
        return f"The run failed {spent} ({run.failure.kind}): {why}"
    if run.status is RunStatus.ANSWERED:
        by = f"; {facts.followed_by} continued it" if facts.followed_by else ""
        return f"The run paused {spent}, because it needed an approval. It was answered{by}."
    return f"The run {run.status} {spent}: {_describe_stop_reason(run)}."


def _describe_stop_reason(run: Run) -> str:
    if (over := run.overrun) is not None:
        return f"its request allowed {over.limit}={over.value:g}, and it had used {over.used:g}"
    known = _STOP_REASON_TEXTS.get(run.stop_reason) if run.stop_reason else None
    return known or str(run.stop_reason)


def _describe_cancellation(receipt: Cancellation | None, spent: str) -> str:
    if receipt is None:
        return f"The run was cancelled {spent}."
    words = [f"The run was cancelled {spent}, by {receipt.requested_by}"]
    if receipt.reason:
        words.append(f" ({receipt.reason})")
    if receipt.phase:
        words.append(f", {_CANCEL_PHASE_TEXTS.get(receipt.phase, receipt.phase)}")
    if receipt.calls:
        outcomes = ", ".join(f"{call_id} {outcome}" for call_id, outcome in receipt.calls.items())
        words.append(f"; its calls: {outcomes}")
    is_kept = receipt.action is not Action.ROLLBACK
    words.append(". Its messages were kept." if is_kept else ". Its messages were removed.")
    return "".join(words)


# The phase in a cancellation's receipt, which the engine and ``usecases.cancellation`` write.
_CANCEL_PHASE_TEXTS: Final = {
    "tools": "while its tools ran",
    "model": "while it asked the model",
    "compaction": "while its context was compacted",
    "start": "before it had done anything",
    "queue": "while it waited for its turn",
    "approval": "while it waited for an approval",
}


def _remedies_after_end(facts: Facts) -> tuple[Remedy, ...]:
    """If the run failed because another run's calls wait for approval, those can be answered."""
    failure = facts.run.failure
    if failure is None or failure.pending_request_id is None:
        return ()
    waits = any(item.message_id == failure.pending_request_id for item in facts.calls)
    effect = "approves the pending calls; then send the message again"
    return (Decide(failure.pending_request_id, approve=True, effect=effect),) if waits else ()
