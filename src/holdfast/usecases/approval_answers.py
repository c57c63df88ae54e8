"""Applying an answer to held calls, inside the transaction that stores its run.

Of two answers the first one counts. The other one is refused, or accepted as a repetition (wire-v1 §6.6).
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.approvals import (
    KEEP_ALIVE,
    NOTHING_PENDING,
    RECENT_ROWS,
    clip_decision,
    describe_decision,
    describe_partial_answer,
    find_contrary_decision,
    held_calls,
    held_request_id,
    match_decisions,
    undecided_calls,
    was_given_before,
)
from holdfast.core.arguments import find_fault
from holdfast.core.expiry import is_expiry, overdue_calls
from holdfast.core.lifecycle import LIVE, Signal
from holdfast.core.messages import Decision, Message, OpenCall, Role, Text, decisions_by_call
from holdfast.core.models import ModelChoice
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus
from holdfast.errors import CallerError, Conflict, InvalidArgument
from holdfast.ports.store import Transaction

MESSAGE_TOO_EARLY = (
    "A message can only come with the answer to the last of the calls that wait. "
    "Send the partial answer alone."
)

_NOT_CONVERSATION = (Role.SYSTEM, Role.SUMMARY)
_ALL_LIVE = Page(limit=100)


class AnswerOptions(Struct, frozen=True, kw_only=True):
    """How an answer is applied."""

    # Some of the held calls may stay undecided.
    partial: bool = False
    # An answer that was given before is accepted as a repetition rather than refused.
    may_repeat: bool = True
    # The deadlines of the calls give the answer: calls that were answered meanwhile are left out.
    is_expiry: bool = False


def apply_answer(tx: Transaction, run: Run, choice: ModelChoice, options: AnswerOptions) -> Run:
    """The run that answers the held calls of its thread, in place of the run that waited for them. After a partial
    answer it waits for the remaining calls."""
    paused = _lock_paused_run(tx, run)
    first, *rest = run.input
    if paused is None:
        return _apply_repeated_answer(tx, run, options)
    # In the form in which it is stored, so that a repetition compares as equal.
    first = replace(
        first,
        decisions=tuple(clip_decision(item, choice.context_window) for item in first.decisions),
    )
    calls = tx.calls.list_open(run.thread_id)
    if options.is_expiry:
        first = replace(first, decisions=_overdue_decisions(calls, first))
    before = decisions_by_call(tx.messages.context(run.thread_id))
    decisions = _new_decisions(
        match_decisions(calls, first.decisions, before, partial=options.partial), before
    )
    decided_ids = {item.call_id for item in decisions} | before.keys()
    if rest and not decided_ids >= _call_ids(held_calls(calls)):
        raise CallerError(MESSAGE_TOO_EARLY)
    _check_arguments(tx, run, calls, decisions)
    tx.runs.transition(paused, Signal.ANSWER)
    _clear_deadlines(tx, run, calls, decisions)
    answer = replace(first, decisions=tuple(decisions), step_id=held_calls(calls)[0].step_id)
    # Whether the context must be compacted is decided by what the paused run had filled.
    progress = replace(run.progress, context_tokens=paused.progress.context_tokens)
    return replace(run, input=(answer, *rest), progress=progress)


def _lock_paused_run(tx: Transaction, run: Run) -> Run | None:
    """The run that waits, locked: another answer or a cancel waits for this transaction, so what is read from here on
    is consistent."""
    paused = tx.runs.find_paused(run.thread_id)
    if paused is None:
        return None
    paused = tx.runs.get_for_update(run.organization_id, paused.id)
    return paused if paused.status is RunStatus.PAUSED else None


def _apply_repeated_answer(tx: Transaction, run: Run, options: AnswerOptions) -> Run:
    """The run of a repeated answer: only the messages that came with it are new."""
    first, *rest = run.input
    # The run is read before the rows: if it ends in between, the rows have its decisions.
    answering = find_answering_run(tx, run.thread_id, run.organization_id)
    rows = _recent_rows(tx, run)
    decided = [*rows, *(answering.input if answering else ())]
    if other := find_contrary_decision(decided, first.decisions, may_repeat=options.may_repeat):
        raise Conflict(f"It was decided before: {describe_decision(other)}.")
    if answering is not None:
        _refuse_while_partial(tx, answering, first)
    if not options.may_repeat:
        raise Conflict(_describe_nothing_pending(answering))
    if not was_given_before(rows, first.decisions):
        raise CallerError(_describe_nothing_pending(answering))
    return replace(run, input=tuple(rest) or (_keep_alive_row(first),))


def _refuse_while_partial(tx: Transaction, answering: Run, answer: Message) -> None:
    """Refuse an answer to calls that will wait again once the current, partial answer is stored: it can be sent
    again then."""
    calls = tx.calls.list_open(answering.thread_id)
    stored = decisions_by_call(tx.messages.context(answering.thread_id))
    before = stored | decisions_by_call(answering.input)
    remaining = [call_id for call_id, _ in undecided_calls(calls, before)]
    if any(item.call_id in remaining for item in answer.decisions):
        partial = describe_partial_answer(remaining)
        raise Conflict(f"The request {held_request_id(calls)} {partial}.")


def _new_decisions(
    decisions: Sequence[Decision], before: Mapping[str, Decision]
) -> Sequence[Decision]:
    """The decisions on calls without one. An answer that only repeats decisions of persons is recorded again."""
    new = [item for item in decisions if item.call_id not in before]
    repeated = [before[item.call_id] for item in decisions if item.call_id in before]
    if not new and any(map(is_expiry, repeated)):
        raise Conflict(f"It was decided before: {describe_decision(repeated[0])}.")
    return new or decisions


def _overdue_decisions(calls: Sequence[OpenCall], answer: Message) -> tuple[Decision, ...]:
    due = _call_ids(overdue_calls(calls, answer.created_at))
    decisions = tuple(item for item in answer.decisions if item.call_id in due)
    if not decisions:
        raise Conflict("The calls were answered in time.")
    return decisions


def _clear_deadlines(
    tx: Transaction, run: Run, calls: Sequence[OpenCall], decisions: Sequence[Decision]
) -> None:
    answered = {item.call_id for item in decisions}
    timed = [item for item in calls if item.deadline is not None and item.call.id in answered]
    if timed:
        tx.calls.put(run.thread_id, [replace(item, deadline=None) for item in timed])


def _check_arguments(
    tx: Transaction, run: Run, calls: Sequence[OpenCall], decisions: Sequence[Decision]
) -> None:
    """Arguments that a person has edited must fit the schema of the tool."""
    edited = {item.call_id: item.arguments for item in decisions if item.arguments is not None}
    if not edited:
        return
    tools = {tool.name: tool for tool in tx.agents.tools([run.agent_id]).get(run.agent_id, ())}
    for item in calls:
        given = edited.get(item.call.id)
        tool = tools.get(item.call.name)
        if given is None or tool is None:
            continue
        problem = find_fault(given, tool.json_schema.get("parameters") or {})
        if problem is not None:
            raise InvalidArgument(
                f"The arguments for {item.call.name} ({item.call.id}) do not fit: {problem}."
            )


def _call_ids(calls: Sequence[OpenCall]) -> set[str]:
    return {item.call.id for item in calls}


def _recent_rows(tx: Transaction, run: Run) -> list[Message]:
    context = tx.messages.context(run.thread_id)
    if any(row.role not in _NOT_CONVERSATION for row in context):
        return list(context[-RECENT_ROWS:])
    # The context is empty but for the system message and a summary, so the history is read instead.
    page = Page(limit=RECENT_ROWS)
    return list(tx.messages.list(run.organization_id, page, thread_id=run.thread_id))


def _keep_alive_row(answer: Message) -> Message:
    return replace(answer, role=Role.USER, decisions=(), content=(Text(KEEP_ALIVE),))


def find_answering_run(tx: Transaction, thread_id: str, organization_id: str) -> Run | None:
    """The run that executes the answer to the last calls of the thread, if it has not ended."""
    query = RunQuery(page=_ALL_LIVE, thread_id=thread_id, statuses=tuple(sorted(LIVE)))
    return next((item for item in tx.runs.list(organization_id, query) if item.is_answer), None)


def _describe_nothing_pending(first: Run | None) -> str:
    if first is None:
        return NOTHING_PENDING
    decisions = "; ".join(describe_decision(item) for row in first.input for item in row.decisions)
    return (
        f"{NOTHING_PENDING} The run {first.id} was first to answer, and executes this: {decisions}."
    )
