"""Writing the end of a run: the one place that does it, for the engine and for the use cases alike.

Everything here is part of the caller's transaction. What is written is computed in ``core/endings``,
``core/open_calls`` and ``core/cancellation``.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast import system_message
from holdfast.core import endings
from holdfast.core.budgets import Overrun
from holdfast.core.cancellation import Action, forgotten_row_ids
from holdfast.core.events import Event, Fact, number_facts
from holdfast.core.ids import Kind
from holdfast.core.lifecycle import ending_signal
from holdfast.core.messages import (
    CallState,
    Decision,
    OpenCall,
    Outcome,
    decisions_by_call,
    default_thread_id,
)
from holdfast.core.open_calls import closing_rows, owns_calls, unstored_answer
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.steps import Step
from holdfast.ports.clock import Ids
from holdfast.ports.store import Transaction
from holdfast.ports.telemetry import Telemetry

log = logging.getLogger(__name__)


class RunEnd(Struct, frozen=True, kw_only=True):
    """Why and when a run ends, and what is written with its end."""

    reason: StopReason
    now: datetime
    failure: RunFailure | None = None
    overrun: Overrun | None = None
    # The steps that end with the run.
    steps: tuple[Step, ...] = ()
    # What became of the calls that were open.
    outcomes: Mapping[str, Outcome] = {}
    # Events that were published already and are not durable yet, and facts that precede the last event.
    pending_events: tuple[Event, ...] = ()
    facts: tuple[Fact, ...] = ()


def end_run(tx: Transaction, run: Run, end: RunEnd) -> tuple[Run, tuple[Event, ...]]:
    """End a run whose open calls are closed; the run as it is then, and the new events."""
    signal = ending_signal(end.reason, run.status)
    # A run that waits for a person ended its event log when it began to wait.
    has_open_log = run.status is not RunStatus.PAUSED
    run = replace(run, failure=end.failure, overrun=end.overrun)
    if end.reason is StopReason.CANCELLED:
        run = _complete_receipt(tx, run, end)
    run = endings.with_end(run, end.reason, signal, end.now)
    events: tuple[Event, ...] = ()
    if has_open_log:
        facts = (*end.facts, endings.run_ended_fact(run, signal))
        events = number_facts(run.id, run.last_event_seq, facts)
        run = replace(run, last_event_seq=events[-1].seq)
    run = tx.runs.transition(run, signal)
    for step in end.steps:
        tx.steps.save(replace(step, stop_reason=end.reason))
    tx.agents.record_run_end(run)
    tx.events.append(end.pending_events + events)
    return run, events


def end_without_worker(
    tx: Transaction, run: Run, end: RunEnd, ids: Ids
) -> tuple[Run, tuple[Event, ...]]:
    """End a run that no worker works on: the calls that it owns are closed as the store has them."""
    calls = tx.calls.list_open(run.thread_id) if owns_calls(run) else ()
    if calls:
        row_ids = (ids.new_id(Kind.MESSAGE), ids.new_id(Kind.MESSAGE))
        decisions = load_decisions(tx, run, calls)
        rows = closing_rows(run, calls, decisions, reason=end.reason, row_ids=row_ids, now=end.now)
        tx.messages.append(rows)
        tx.calls.close(run.thread_id)
        outcomes = {item.call_id: item.outcome for row in rows for item in row.tool_returns}
        end = replace(end, outcomes=outcomes)
        run = replace(run, progress=replace(run.progress, input_stored=True))
    return end_run(tx, run, end)


def load_decisions(tx: Transaction, run: Run, calls: Sequence[OpenCall]) -> Mapping[str, Decision]:
    """The decisions on the open calls that the run owns: its own answer's, and those of earlier answers. The context
    is only read if the run's own answer does not decide all held calls: a run whose history cannot be read can
    still be ended."""
    answer = unstored_answer(run)
    own = decisions_by_call(answer)
    if all(item.state is not CallState.HELD or item.call.id in own for item in calls):
        return own
    return decisions_by_call([*tx.messages.context(run.thread_id), *answer])


def report_run_end(telemetry: Telemetry, run: Run) -> None:
    """Log the end of a run and count it in the telemetry, once its transaction is committed."""
    telemetry.run_ended(run)
    log.info(
        "run.ended", extra={"run_id": run.id, "agent_id": run.agent_id, **endings.log_fields(run)}
    )


def _complete_receipt(tx: Transaction, run: Run, end: RunEnd) -> Run:
    """The run whose cancel receipt says what the run was doing, what became of its calls, and what a rollback deleted."""
    receipt = run.cancellation
    if receipt is None:
        return run
    step = end.steps[0] if end.steps else None
    phase = endings.cancel_phase(run, step, end.outcomes)
    deleted = _roll_back(tx, run, end.now) if receipt.action is Action.ROLLBACK else 0
    receipt = replace(receipt, phase=phase, calls=dict(end.outcomes), deleted_passages=deleted)
    return replace(run, cancellation=receipt)


def _roll_back(tx: Transaction, run: Run, now: datetime) -> int:
    """Hide the rows of the run from the context, and delete the passages that it has written; return how many."""
    context = tx.messages.context(run.thread_id)
    tx.messages.hide(run.thread_id, forgotten_row_ids(context, run.id))
    deleted = tx.passages.delete_of_run(run.id)
    if deleted:
        # Their number is in the system message since they were written.
        agent = tx.agents.get(run.organization_id, run.agent_id)
        shown = (run.thread_id, default_thread_id(agent.id))
        system_message.rewrite_threads(tx, agent, shown, now)
    return deleted
