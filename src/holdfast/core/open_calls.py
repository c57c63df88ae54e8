"""Which run owns the open calls of a thread, and the rows that close them when that run ends without running them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from holdfast.core.cancellation import DENIED_ON_CANCEL, closing_result, denial_result
from holdfast.core.lifecycle import HOLDING, WAITING
from holdfast.core.messages import (
    CallState,
    Decision,
    Message,
    OpenCall,
    Outcome,
    Role,
    Text,
    ToolReturn,
)
from holdfast.core.runs import Run, RunStatus, StopReason

# The server has not started a tool for a call in one of these states.
_NOT_STARTED = (CallState.HELD, CallState.READY)
_UNSTARTED = (Text("The server stopped before this tool was started. It was not run."),)


def owns_calls(run: Run) -> bool:
    """Whether the open calls of the run's thread are its own: it asked for them or brings their answer, and no later
    run has taken them over. A thread with open calls has exactly one such run; ending that run closes the calls. A
    run that only compacts the context never owns them."""
    if run.request.compaction is not None:
        return False
    if run.status is RunStatus.QUEUED:
        return run.is_answer
    return run.status in HOLDING or run.status is RunStatus.PAUSED


def find_owner(runs: Iterable[Run]) -> Run | None:
    """The run of a thread that owns its open calls."""
    return next(filter(owns_calls, runs), None)


def unstored_answer(run: Run) -> tuple[Message, ...]:
    """The answer to held calls that the run was sent with, if the history does not have it yet."""
    return () if run.progress.input_stored else tuple(row for row in run.input if row.decisions)


def settle_unstarted(calls: Sequence[OpenCall]) -> tuple[OpenCall, ...]:
    """The calls that a worker was executing when it died: those that it had not started have their result now."""
    return tuple(
        replace(
            item,
            state=CallState.SETTLED,
            result=ToolReturn(item.call.id, item.call.name, Outcome.NOT_STARTED, _UNSTARTED),
        )
        if item.state in _NOT_STARTED
        else item
        for item in calls
    )


def closing_rows(
    run: Run,
    calls: Sequence[OpenCall],
    decisions: Mapping[str, Decision],
    *,
    reason: StopReason,
    row_ids: tuple[str, str],
    now: datetime,
) -> tuple[Message, ...]:
    """The rows that give each call its result when the run ends without a worker. The answer that the run was sent
    with is stored with them, because it was given. ``decisions`` has all that persons have decided on the calls."""
    if reason is StopReason.CANCELLED and run.status in WAITING:
        return _denial_rows(run, calls, decisions, row_ids, now)
    how = "was cancelled" if reason is StopReason.CANCELLED else "was given up"
    results = [_unfinished_result(item, decisions.get(item.call.id), how) for item in calls]
    answer = unstored_answer(run)
    follow_up = tuple(row for row in run.input if answer and not row.decisions)
    return (*answer, results_row(run, calls, results, row_ids[1], now), *follow_up)


def results_row(
    run: Run, calls: Sequence[OpenCall], results: Sequence[ToolReturn], row_id: str, now: datetime
) -> Message:
    """The row in which each of the calls has its result."""
    return _build_row(run, calls, row_id, now, role=Role.TOOL, tool_returns=tuple(results))


def _denial_rows(
    run: Run,
    calls: Sequence[OpenCall],
    decisions: Mapping[str, Decision],
    row_ids: tuple[str, str],
    now: datetime,
) -> tuple[Message, ...]:
    """The rows of calls whose run is cancelled before they were started (wire-v1 §6.7): decisions of persons stay
    valid, all other calls are denied."""
    denials = tuple(
        Decision(call_id=item.call.id, approve=False, reason=DENIED_ON_CANCEL)
        for item in calls
        if item.state is CallState.HELD and item.call.id not in decisions
    )
    results = [
        _decided_result(item, decisions[item.call.id])
        if item.call.id in decisions
        else denial_result(item.call, DENIED_ON_CANCEL)
        for item in calls
    ]
    rows = unstored_answer(run)
    if denials:
        rows += (_build_row(run, calls, row_ids[0], now, role=Role.APPROVAL, decisions=denials),)
    return (*rows, results_row(run, calls, results, row_ids[1], now))


def _unfinished_result(item: OpenCall, decision: Decision | None, how: str) -> ToolReturn:
    """The result of a call when its worker is gone: from the state of the call and the decision on it."""
    if item.state not in _NOT_STARTED:
        return closing_result(item, Outcome.UNKNOWN, how)
    if decision is None:
        return closing_result(item, Outcome.NOT_STARTED, how)
    return _decided_result(item, decision, how)


def _decided_result(item: OpenCall, decision: Decision, how: str = "was cancelled") -> ToolReturn:
    """The result of a call that was decided and will not run."""
    if decision.approve:
        return closing_result(item, Outcome.NOT_STARTED, how)
    return decision.returned or denial_result(item.call, decision.reason)


def _build_row(
    run: Run, calls: Sequence[OpenCall], row_id: str, now: datetime, **fields: Any
) -> Message:
    """A row of this run and of the step that asked for the calls."""
    return Message(
        id=row_id,
        agent_id=run.agent_id,
        thread_id=run.thread_id,
        created_at=now,
        run_id=run.id,
        step_id=calls[0].step_id,
        **fields,
    )
