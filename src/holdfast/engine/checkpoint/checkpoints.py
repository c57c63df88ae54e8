"""The one transaction with which a run advances."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import CompactionBegan, Event, Fact, number_facts
from holdfast.core.lifecycle import Signal, ending_signal
from holdfast.core.messages import Outcome
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.steps import Step
from holdfast.core.turn import AskModel, Command, Compact, EndTurn, RequestApproval, RunTools
from holdfast.engine.checkpoint.closing import close_state
from holdfast.engine.checkpoint.intent import with_intent
from holdfast.engine.checkpoint.prompt import rewrite_stale_prompt
from holdfast.engine.checkpoint.rows import store_rows, store_traces, summary_facts
from holdfast.engine.compact import store_compaction, tokens_before
from holdfast.engine.progress import EffectResult
from holdfast.engine.state import State, with_progress
from holdfast.errors import StaleRun
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.store import Transaction
from holdfast.run_end import RunEnd, end_run


class CheckpointResult(Struct, frozen=True):
    """What is stored now: the state, the command that begins, and the events of this checkpoint."""

    state: State
    command: Command
    events: tuple[Event, ...]
    # The step that ended before the current one began.
    finished_step: Step | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, or waits for a person: there is no effect to execute."""
        return isinstance(self.command, EndTurn | RequestApproval)


class Checkpoints(Struct, frozen=True):
    """``save`` runs inside the caller's transaction."""

    clock: Clock
    ids: Ids

    def save(self, tx: Transaction, effect: EffectResult, command: Command) -> CheckpointResult:
        """Store the result of the effect and the intent of the command. StaleRun if the run was changed meanwhile."""
        # First: another server that has the run by now may have written rows that collide with these.
        is_prompt_stale = tx.runs.lock(effect.state.run)
        effect = _with_number(effect)
        outcomes: Mapping[str, Outcome] = {}
        if isinstance(command, EndTurn):
            if command.reason is StopReason.CANCELLED:
                effect = _with_receipt(tx, effect)
            state, outcomes = close_state(effect, command, self.clock.now(), self.ids)
        else:
            state = with_intent(effect.state, command, self.clock.now(), self.ids)
        state, facts = self._store_results(tx, state, command)
        if is_prompt_stale and isinstance(command, AskModel):
            state = rewrite_stale_prompt(tx, state, self.clock.now())
        if isinstance(command, EndTurn | RequestApproval):
            state, events = self._store_end(tx, state, command, outcomes, facts)
            return CheckpointResult(state, command, events, effect.closed_step)
        finished_step = _store_finished_step(tx, effect.state.step, state.run.progress.ending)
        state, events = self._store_start(tx, state, command, facts)
        return CheckpointResult(state, command, events, finished_step or effect.closed_step)

    def _store_results(
        self, tx: Transaction, state: State, command: Command
    ) -> tuple[State, tuple[Fact, ...]]:
        """Store what the effect has produced, and the open calls; the facts of it that clients are shown."""
        store_traces(tx, state)
        summary = summary_facts(state)
        state = store_compaction(tx, replace(state, traces=()), self.clock.now())
        if isinstance(command, RunTools | RequestApproval):
            tx.calls.put(state.run.thread_id, state.turn.calls)
        state, stored = store_rows(tx, state)
        return state, (*summary, *stored)

    def _store_start(
        self, tx: Transaction, state: State, command: Command, facts: tuple[Fact, ...]
    ) -> tuple[State, tuple[Event, ...]]:
        """Store that the effect of the command begins."""
        if isinstance(command, AskModel | Compact) and state.step is not None:
            tx.steps.add(state.step)
        if isinstance(command, Compact) and state.run.request.include_compaction_messages:
            facts = (*facts, self._compaction_began(state, command))
        events = number_facts(state.run.id, state.run.last_event_seq, facts)
        tx.events.append(state.pending_events + events)
        run = replace(state.run, last_event_seq=state.run.last_event_seq + len(events))
        return replace(state, run=_save_run(tx, run), pending_events=()), events

    def _compaction_began(self, state: State, command: Compact) -> CompactionBegan:
        """For callers that asked for compaction messages (wire-v1 §7.9)."""
        tokens = tokens_before(state, command.trigger)
        window = state.choice.context_window
        return CompactionBegan(self.ids.new_otid(), command.trigger, tokens, window)

    def _store_end(
        self,
        tx: Transaction,
        state: State,
        command: EndTurn | RequestApproval,
        outcomes: Mapping[str, Outcome],
        facts: tuple[Fact, ...],
    ) -> tuple[State, tuple[Event, ...]]:
        end = command if isinstance(command, EndTurn) else EndTurn(StopReason.REQUIRES_APPROVAL)
        run = state.run
        if run.status is RunStatus.QUEUED and ending_signal(end.reason, run.status) != Signal.FAIL:
            run = tx.runs.transition(run, Signal.CLAIM)
        run, events = end_run(
            tx,
            run,
            RunEnd(
                reason=end.reason,
                now=self.clock.now(),
                # The traceback is for the step alone: runs are shown to callers.
                failure=replace(end.failure, traceback="") if end.failure else None,
                overrun=end.overrun,
                steps=(state.step,) if state.step else (),
                outcomes=outcomes,
                pending_events=state.pending_events,
                facts=facts,
            ),
        )
        return replace(state, run=run, pending_events=()), events


def _with_number(effect: EffectResult) -> EffectResult:
    """The result whose run has the number of this checkpoint."""
    number = effect.state.run.progress.checkpoints + 1
    return replace(effect, state=with_progress(effect.state, checkpoints=number))


def _with_receipt(tx: Transaction, effect: EffectResult) -> EffectResult:
    """The result with the cancel that the store has: only the transaction can know it."""
    state = effect.state
    run = tx.runs.find(state.run.id)
    if run is None:
        raise StaleRun(f"Run {state.run.id} is gone.")
    run = replace(state.run, status=run.status, cancellation=run.cancellation)
    return replace(effect, state=replace(state, run=run))


def _store_finished_step(
    tx: Transaction, step: Step | None, ending: StopReason | None
) -> Step | None:
    if step is None:
        return None
    step = replace(step, stop_reason=ending)
    tx.steps.save(step)
    return step


def _save_run(tx: Transaction, run: Run) -> Run:
    """Save the run; the first checkpoint of a run claims it."""
    if run.status is RunStatus.QUEUED:
        return tx.runs.transition(run, Signal.CLAIM)
    tx.runs.save(run)
    return run
