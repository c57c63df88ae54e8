"""The one way in which a run gets ahead: decide, and write what was done and what will be done, at once.

Each function here runs inside a single transaction. A tool call is on record as started, and a step as
pending, before the effect begins; the ending of a run commits with its last rows.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import endings, lifecycle
from holdfast.core.approvals import held_request_id, pending_approval, without_heartbeat
from holdfast.core.budgets import Overrun, find_overrun
from holdfast.core.cancellation import closing_result
from holdfast.core.endings import EarlyEnd
from holdfast.core.events import CompactionBegan, Event, Fact, MessageStored
from holdfast.core.expiry import call_deadline, first_deadline
from holdfast.core.ids import Kind, sibling_id
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import (
    CallState,
    Message,
    OpenCall,
    Outcome,
    Role,
    Text,
    decisions_by_call,
)
from holdfast.core.pieces import pieces
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.steps import COMPACTION, Step, StepStatus
from holdfast.core.turn import (
    AskModel,
    Command,
    Compact,
    EndTurn,
    RequestApproval,
    RunTools,
    next_command,
)
from holdfast.engine.compact import store_compaction, tokens_before
from holdfast.engine.progress import EffectProgress, PartialAnswer
from holdfast.engine.receipt import with_receipt
from holdfast.engine.run_tools import with_results
from holdfast.engine.state import State, load_state, with_calls, with_progress, with_rows
from holdfast.errors import StaleRun
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.store import Transaction

# How many event numbers are reserved at a time; one write of a stream covers many tokens.
RESERVED_AHEAD = 1_000

_MICROSECOND = timedelta(microseconds=1)


class CheckpointResult(Struct, frozen=True):
    """Where a checkpoint left the run. No command: the run has ended."""

    state: State
    command: Command | None
    events: tuple[Event, ...]
    # The step before the one that begins now, as it was written.
    finished_step: Step | None = None


class Checkpoints(Struct, frozen=True):
    """Checkpoints need the time and new ids; that is all they need from outside."""

    clock: Clock
    ids: Ids

    def claim(self, tx: Transaction, run_id: str) -> CheckpointResult | None:
        """Take a queued run and begin it; None if it is no longer there to be taken."""
        run = tx.runs.find(run_id)
        if run is None or run.status is not RunStatus.QUEUED:
            return None
        reserved = RESERVED_AHEAD if run.request.stream_tokens else 0
        state = load_state(tx, replace(run, started_at=self.clock.now(), reserved_seq=reserved))
        if state.turn.calls and not run.is_answer:
            error = pending_approval(state.turn.calls, decisions_by_call(state.turn.history))
            failure = RunFailure(
                "pending_approval", str(error), str(error), error.pending_request_id, error.calls
            )
            # Those calls are another run's: they stay as they are.
            return self.fail(tx, with_calls(state, ()), failure, StopReason.ERROR)
        return self.advance(tx, state)

    def advance(self, tx: Transaction, state: State) -> CheckpointResult:
        """Write what the last effect produced, decide what comes next, and write that it begins."""
        command = next_command(state.turn, state.policy)
        if (over := _overrun(state)) is not None:
            if isinstance(command, Compact) and command.ending is not None:
                # It has said what it had to say; making its context smaller is left to the next run.
                command = EndTurn(command.ending)
            elif isinstance(command, AskModel | RunTools | Compact):
                return self.stop(tx, state, EffectProgress(""), endings.budget_end(over))
        finished_step = state.step
        state = _store_traces(tx, state)
        summary = _summary_facts(state)
        state = store_compaction(tx, self._prepare(state, command), self.clock.now())
        if isinstance(command, RunTools | RequestApproval):
            tx.calls.put(state.run.thread_id, state.turn.calls)
        state, stored = _store_rows(tx, state)
        facts: tuple[Fact, ...] = summary + stored
        if isinstance(command, EndTurn):
            return self._end(tx, state, command.reason, facts)
        if isinstance(command, RequestApproval):
            return self._end(tx, _with_approval_request(state), StopReason.REQUIRES_APPROVAL, facts)
        if finished_step is not None:
            finished_step = replace(finished_step, stop_reason=state.run.progress.ending)
            tx.steps.save(finished_step)
        if isinstance(command, AskModel | Compact) and state.step is not None:
            tx.steps.add(state.step)
        if isinstance(command, Compact):
            facts += self._compaction_began(state, command)
        state, events = _number_events(state, facts)
        tx.events.append(state.pending_events + events)
        state = replace(state, run=_save_run(tx, state), pending_events=())
        return CheckpointResult(state, command, events, finished_step)

    def fail(
        self, tx: Transaction, state: State, failure: RunFailure, reason: StopReason
    ) -> CheckpointResult:
        """End the run as failed. Rows that were never stored stay out of the history."""
        state = self._with_step_ended(state, StepStatus.FAILED, failure)
        state = replace(state, run=replace(state.run, failure=replace(failure, traceback="")))
        return self.end_early(tx, state, reason, {})

    def cancel(self, tx: Transaction, state: State, progress: EffectProgress) -> CheckpointResult:
        """End the run as its cancel on record says, keeping what it had come to."""
        run = tx.runs.find(state.run.id)
        if run is None:
            raise StaleRun(f"Run {state.run.id} is gone.")
        state = replace(
            state, run=replace(state.run, status=run.status, cancellation=run.cancellation)
        )
        return self.stop(tx, state, progress, EarlyEnd(StopReason.CANCELLED))

    def stop(
        self, tx: Transaction, state: State, progress: EffectProgress, end: EarlyEnd
    ) -> CheckpointResult:
        """End the run in the middle of an effect, keeping what it had come to."""
        status = StepStatus.CANCELLED if end.failure is None else StepStatus.FAILED
        state = self._with_step_ended(state, status, end.failure)
        state = replace(state, run=replace(state.run, failure=end.failure, overrun=end.overrun))
        state = self._with_partial_answer(state, progress.answer)
        outcomes = {
            item.call.id: Outcome.KILLED
            if item.call.id in progress.started_calls
            else Outcome.NOT_STARTED
            for item in state.turn.calls
        }
        return self.end_early(tx, state, end.reason, outcomes)

    def _with_step_ended(
        self, state: State, status: StepStatus, failure: RunFailure | None = None
    ) -> State:
        """The step ends here if its answer was still awaited; how long it took is told all the same."""
        step = state.step
        if step is None or step.status is not StepStatus.PENDING:
            return state
        spent_ns = (self.clock.now() - step.created_at) // _MICROSECOND * 1_000
        step = replace(
            step, status=status, failure=failure, llm_request_ns=spent_ns, step_ns=spent_ns
        )
        return replace(state, step=step)

    def _with_partial_answer(self, state: State, answer: PartialAnswer) -> State:
        """What clients saw of an answer that was cut short stays, as if the model had stopped there."""
        content, calls = answer.content(), answer.calls(parallel=state.policy.parallel)
        if state.step is None or state.has_output or not (content or calls):
            return state
        row = Message(
            id=answer.message_id,
            agent_id=state.agent.id,
            thread_id=state.run.thread_id,
            role=Role.ASSISTANT,
            created_at=self.clock.now(),
            content=content,
            tool_calls=calls,
            run_id=state.run.id,
            step_id=state.step.id,
            model=state.choice.handle,
        )
        step_id = state.step.id
        opened = tuple(OpenCall(call, row.id, step_id, CallState.FRESH) for call in calls)
        return replace(with_calls(with_rows(state, row), opened), has_output=True)

    def end_early(
        self, tx: Transaction, state: State, reason: StopReason, outcomes: Mapping[str, Outcome]
    ) -> CheckpointResult:
        """End a run that was not done. Its open calls get their results first: what is known, else their
        outcome (unknown, if it is not given), so that the history stays valid."""
        how = "was cancelled" if reason is StopReason.CANCELLED else "was stopped"
        if state.run.overrun is not None:
            how = f"had used up its {state.run.overrun.limit}"
        results = tuple(
            closing_result(item, outcomes.get(item.call.id, Outcome.UNKNOWN), how)
            for item in state.turn.calls
        )
        if results:
            command = RunTools((), results)
            state = with_results(state, command, {}, clock=self.clock, ids=self.ids, spent_ns=0)
        state, stored = _store_rows(tx, _store_traces(tx, state))
        if reason is StopReason.CANCELLED:
            outcomes = {item.call_id: item.outcome for item in results}
            state = replace(state, run=with_receipt(tx, state.run, state.step, outcomes))
        return self._end(tx, state, reason, stored)

    def _prepare(self, state: State, command: Command) -> State:
        """The state with the intention of the command in it."""
        match command:
            case AskModel():
                return self._prepare_step(state, command)
            case Compact(ending=ending):
                return with_progress(self._with_step(state, origin=COMPACTION), ending=ending)
            case RunTools():
                return _prepare_calls(state, command)
            case RequestApproval():
                return self._split_held(state, command)
            case _:
                return state

    def _with_step(self, state: State, origin: str | None = None) -> State:
        step = Step(
            id=self.ids.new_id(Kind.STEP),
            organization_id=state.run.organization_id,
            agent_id=state.agent.id,
            run_id=state.run.id,
            model=state.choice,
            created_at=self.clock.now(),
            origin=origin,
            project_id=state.run.project_id,
            trace_id=state.run.request.trace_id,
        )
        run = replace(state.run, num_steps=state.run.num_steps + 1)
        return replace(state, step=step, run=run)

    def _compaction_began(self, state: State, command: Compact) -> tuple[Fact, ...]:
        """That the context is being made smaller is told to those who asked for it (wire-v1 §7.9)."""
        if not state.run.request.include_compaction_messages:
            return ()
        tokens = tokens_before(state, command.trigger)
        window = state.choice.context_window
        return (CompactionBegan(self.ids.new_otid(), command.trigger, tokens, window),)

    def _prepare_step(self, state: State, command: AskModel) -> State:
        state = self._with_step(state)
        if command.nudge is None or state.step is None:
            return state
        nudge = Message(
            id=self.ids.new_id(Kind.MESSAGE),
            agent_id=state.agent.id,
            thread_id=state.run.thread_id,
            role=Role.USER,
            created_at=self.clock.now(),
            content=(Text(command.nudge),),
            run_id=state.run.id,
            step_id=state.step.id,
            hidden=True,
        )
        return with_rows(state, nudge)

    def _split_held(self, state: State, command: RequestApproval) -> State:
        """The answer as it is stored while it waits: automatic calls first, held ones in a row of
        their own that holds the content if there is no other (wire-v1 §6.2)."""
        if all(item.state is not CallState.FRESH for item in state.turn.calls):
            # Some were answered, so they are stored already and go on waiting, with that answer on record.
            return replace(state, has_output=True)
        *before, answer = state.pending_messages
        asked = tuple(
            without_heartbeat(call, state.policy.properties(call.name)) for call in command.held
        )
        approval = replace(answer, role=Role.APPROVAL, tool_calls=asked)
        rows: tuple[Message, ...] = (approval,)
        if command.automatic:
            approval = replace(approval, id=sibling_id(answer.id), content=())
            rows = (replace(answer, tool_calls=command.automatic), approval)
        owner = {call.id: row.id for row in rows for call in row.tool_calls}
        held = {call.id: call for call in asked}
        now = self.clock.now()
        calls = tuple(
            replace(
                item,
                call=held[item.call.id],
                message_id=owner[item.call.id],
                state=CallState.HELD,
                deadline=call_deadline(item.call.name, state.run.request, state.policy.rules, now),
            )
            if item.call.id in held
            else replace(item, message_id=owner[item.call.id], state=CallState.READY)
            for item in state.turn.calls
        )
        return replace(with_calls(state, calls), pending_messages=(*before, *rows))

    def _end(
        self, tx: Transaction, state: State, reason: StopReason, facts: tuple[Fact, ...]
    ) -> CheckpointResult:
        now = self.clock.now()
        signal = lifecycle.ending_signal(reason)
        run = state.run
        if run.status is RunStatus.QUEUED and signal is not Signal.FAIL:
            run = tx.runs.transition(run, Signal.CLAIM)
        run = endings.with_end(run, reason, signal, now)
        last = endings.run_ended_fact(run, signal)
        state, events = _number_events(replace(state, run=run), (*facts, last))
        run = tx.runs.transition(state.run, signal)
        if state.step is not None:
            tx.steps.save(replace(state.step, stop_reason=reason))
        tx.agents.record_run_end(run)
        tx.events.append(state.pending_events + events)
        return CheckpointResult(replace(state, run=run, pending_events=()), None, events)


def _with_approval_request(state: State) -> State:
    """The run as one that waits for a person: what the inbox looks at."""
    asked_at = next(row.created_at for row in reversed(state.turn.history) if row.tool_calls)
    run = replace(
        state.run,
        approval_id=held_request_id(state.turn.calls),
        asked_at=asked_at,
        expires_at=first_deadline(state.turn.calls),
    )
    return replace(state, run=run)


def _prepare_calls(state: State, command: RunTools) -> State:
    """Calls as they stand when the tools start: this is the write-ahead."""
    results = {result.call_id: result for result in command.settled}
    calls = tuple(
        replace(item, state=CallState.SETTLED, result=results[item.call.id])
        if item.call.id in results
        else replace(item, state=CallState.STARTED)
        for item in state.turn.calls
    )
    return with_calls(state, calls)


def _store_rows(tx: Transaction, state: State) -> tuple[State, tuple[MessageStored, ...]]:
    """Store what was produced, and what of it is news."""
    if not state.has_output:
        return state, ()
    if state.clear_context:
        tx.messages.set_context(state.run.thread_id, [state.turn.history[0].id])
    tx.messages.append(state.pending_messages)
    state = _with_tools_used(tx, state)
    if state.calls_answered:
        tx.calls.close(state.run.thread_id)
    facts = tuple(
        MessageStored(row, piece)
        for row in state.pending_messages
        if _is_reported(row, state)
        for piece in range(len(pieces(row)))
    )
    progress = replace(state.turn.progress, input_stored=True)
    stored = replace(
        state,
        run=replace(state.run, progress=progress),
        turn=replace(state.turn, progress=progress),
        pending_messages=(),
        has_output=False,
        calls_answered=False,
        clear_context=False,
    )
    return stored, facts


def _store_traces(tx: Transaction, state: State) -> State:
    if not state.traces:
        return state
    tx.traces.add(state.traces)
    return replace(state, traces=())


def _summary_facts(state: State) -> tuple[Fact, ...]:
    """What a compaction wrote is for the model; it is told to those who asked for it (wire-v1 §7.9)."""
    if state.pending_compaction is None or not state.run.request.include_compaction_messages:
        return ()
    return (MessageStored(state.pending_compaction.row),)


def _overrun(state: State) -> Overrun | None:
    """What the steps that are complete have used too much of."""
    run = state.run
    if run.request.budget is None:
        return None
    return find_overrun(run.request.budget, run.usage.total_tokens, run.cost)


def _is_reported(row: Message, state: State) -> bool:
    """The run's own input is none to whoever sent it, nor is an answer that was told while it streamed."""
    was_told = state.run.request.stream_tokens and row.role is not Role.TOOL
    return not was_told and row.id not in {own.id for own in state.run.input}


def _save_run(tx: Transaction, state: State) -> Run:
    """The run, claimed by this very checkpoint if it was not before."""
    if state.run.status is RunStatus.QUEUED:
        return tx.runs.transition(state.run, Signal.CLAIM)
    tx.runs.save(state.run)
    return state.run


def _number_events(state: State, facts: Sequence[Fact]) -> tuple[State, tuple[Event, ...]]:
    first = state.run.last_event_seq + 1
    events = tuple(Event(state.run.id, seq, fact) for seq, fact in enumerate(facts, first))
    run = replace(state.run, last_event_seq=state.run.last_event_seq + len(events))
    return replace(state, run=run), events


def _with_tools_used(tx: Transaction, state: State) -> State:
    """The run with the ids of the tools that its rows call or that it carried out (wire-v1 §3.5)."""
    called = {call.name for row in state.pending_messages for call in row.tool_calls}
    called |= set(state.turn.progress.called)
    known = state.run.tools_used
    new = tuple(tool.id for tool in state.tools if tool.name in called and tool.id not in known)
    if not new:
        return state
    tx.runs.record_tools(state.run.id, new)
    return replace(state, run=replace(state.run, tools_used=known + new))
