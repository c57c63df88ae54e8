"""Whose the open calls of a thread are, and what is written of them when that run does not carry them out."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.core.cancellation import DENIED_ON_CANCEL, closing_result, denial_result
from holdfast.core.lifecycle import HOLDING
from holdfast.core.messages import (
    CallState,
    Decision,
    Message,
    OpenCall,
    Outcome,
    Role,
    ToolReturn,
)
from holdfast.core.runs import Run, RunStatus

# No tool of ours was started for a call in one of these.
_NOT_STARTED = (CallState.HELD, CallState.READY)


def owns_calls(run: Run) -> bool:
    """Whether the open calls of the run's thread are its own: it asked for them, or brings their answer, and nobody
    has taken them over since. True of exactly one run of a thread that has open calls; whoever ends that run
    closes them. A run that only makes the context smaller works beside them."""
    if run.request.compaction is not None:
        return False
    if run.status is RunStatus.QUEUED:
        return run.is_answer
    return run.status in HOLDING or run.status is RunStatus.PAUSED


def find_owner(runs: Iterable[Run]) -> Run | None:
    """Of the runs of a thread the one whose calls are open."""
    return next(filter(owns_calls, runs), None)


def unstored_answer(run: Run) -> tuple[Message, ...]:
    """What the run was sent to answer, if that is not part of the history yet."""
    return () if run.progress.input_stored else tuple(row for row in run.input if row.decisions)


def denial_rows(
    run: Run,
    calls: Sequence[OpenCall],
    before: Mapping[str, Decision],
    row_ids: tuple[str, str],
    now: datetime,
) -> tuple[Message, ...]:
    """What the history says of the calls when the run that owns them is cancelled before they were started
    (wire-v1 §6.7). What persons decided ``before`` stands: nobody decides twice."""
    undecided = tuple(
        Decision(call_id=item.call.id, approve=False, reason=DENIED_ON_CANCEL)
        for item in calls
        if item.state is CallState.HELD and item.call.id not in before
    )
    results = [
        _decided_result(item, before[item.call.id])
        if item.call.id in before
        else denial_result(item.call, DENIED_ON_CANCEL)
        for item in calls
    ]
    told = unstored_answer(run)
    if undecided:
        told += (_build_row(run, calls, row_ids[0], now, role=Role.APPROVAL, decisions=undecided),)
    return (*told, results_row(run, calls, results, row_ids[1], now))


def results_row(
    run: Run, calls: Sequence[OpenCall], results: Sequence[ToolReturn], row_id: str, now: datetime
) -> Message:
    """The row in which each of the calls has its result."""
    return _build_row(run, calls, row_id, now, role=Role.TOOL, tool_returns=tuple(results))


def unfinished_result(item: OpenCall, decision: Decision | None, how: str) -> ToolReturn:
    """What is known of a call when the run that owned it is gone: how that ended, and what was decided."""
    if item.state not in _NOT_STARTED:
        return closing_result(item, Outcome.UNKNOWN, how)
    if decision is None:
        return closing_result(item, Outcome.NOT_STARTED, how)
    return _decided_result(item, decision, how)


def _decided_result(item: OpenCall, decision: Decision, how: str = "was cancelled") -> ToolReturn:
    """The result of a call that was decided and is not carried out any more."""
    if decision.approve:
        return closing_result(item, Outcome.NOT_STARTED, how)
    return decision.returned or denial_result(item.call, decision.reason)


def _build_row(
    run: Run, calls: Sequence[OpenCall], row_id: str, now: datetime, **said: Any
) -> Message:
    """Of this run, and of the step that asked for the calls."""
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        thread_id=run.thread_id,
        created_at=now,
        run_id=run.id,
        step_id=calls[0].step_id,
        **said,
    )
