"""The loop: a decision, its effect, a checkpoint, again. One call carries one run to its end."""

import logging
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from msgspec.structs import replace

from holdfast.core.endings import log_fields
from holdfast.core.ids import Kind
from holdfast.core.runs import RunFailure, RunStatus, StopReason
from holdfast.core.traces import CallType
from holdfast.core.turn import AskModel, Command, Compact, RunTools
from holdfast.engine import recovery
from holdfast.engine.ask_model import ask_model
from holdfast.engine.attempts import with_attempts
from holdfast.engine.budget import time_limit
from holdfast.engine.checkpoint import CheckpointResult, Checkpoints
from holdfast.engine.compact import compact
from holdfast.engine.event_writer import EventWriter
from holdfast.engine.force_end import force_end
from holdfast.engine.interruption import Interrupted, Interruption
from holdfast.engine.partial_usage import with_partial_usage
from holdfast.engine.progress import EffectProgress
from holdfast.engine.provider_traces import build_traces
from holdfast.engine.report import RunReport
from holdfast.engine.run_tools import run_tools, with_partial_results
from holdfast.engine.state import State
from holdfast.engine.watchdog import ASKING, RUNNING_TOOLS
from holdfast.errors import Bug, ModelError, StaleRun
from holdfast.ports.bell import CALLBACKS, DEADLINES
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# The innermost calls of an error of ours that are kept with its step.
TRACEBACK_FRAMES = 20

Checkpoint = Callable[[Transaction, State], CheckpointResult]


class Runner:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._checkpoints = Checkpoints(services.clock, services.ids)

    async def run(self, run_id: str, interruption: Interruption) -> None:
        """Claim a queued run and carry it to its end."""
        store = self._services.store
        at = await store.write(lambda tx: self._checkpoints.claim(tx, run_id))
        if at is None:
            log.info("run.skipped")
            # Its log is closed here, and who cancelled it may not have told its end yet.
            self._services.events.publish(
                await store.read(lambda tx: tx.events.list_after(run_id, 0, 1))
            )
            return
        await self._drive(at, interruption)

    async def resume(self, run_id: str, interruption: Interruption) -> None:
        """Pick up a run that was claimed once and has not ended."""
        again = partial(
            recovery.resume,
            checkpoints=self._checkpoints,
            run_id=run_id,
            max_recoveries=self._services.limits.max_recoveries,
        )
        at = await self._services.store.write(again)
        if at is not None:
            await self._drive(at, interruption)

    async def force_end(self, run_id: str, why: str) -> None:
        """End a run that no try could carry on."""
        services = self._services
        end = partial(force_end, run_id=run_id, why=why, clock=services.clock, ids=services.ids)
        given_up = await services.store.write(end)
        if given_up is None:
            return
        run = given_up.run
        # Whoever gives a run up need not be the task that carried it.
        told = {"run_id": run.id, "agent_id": run.agent_id, **log_fields(run)}
        log.error("run.retries_exhausted", extra=told)
        for step in given_up.steps:
            services.telemetry.step_ended(step)
        services.telemetry.run_ended(run)
        services.events.publish(given_up.events)
        services.bell.ring(CALLBACKS)

    async def _drive(self, at: CheckpointResult, interruption: Interruption) -> None:
        """Carry a run on from a checkpoint. Every way out of here leaves the run ended, except that the
        server stops: then it is left as it is, for the next start to continue."""
        self._services.events.publish(at.events)
        event_writer = EventWriter(self._services, at.state.run)
        report = RunReport(self._services, at)
        try:
            with time_limit(at.state.run, self._services.clock, interruption):
                while at.command is not None:
                    at = await self._one_step(at.state, at.command, event_writer, interruption)
                    event_writer.continue_from(at.state.run)
                    self._services.events.publish(at.events)
                    report.on_checkpoint(at)
            self._announce_deadline(at.state)
            if at.state.run.request.callback_url is not None:
                self._services.bell.ring(CALLBACKS)
        finally:
            await event_writer.close()
            report.close()

    def _announce_deadline(self, state: State) -> None:
        waits = state.run.status is RunStatus.PAUSED
        if waits and any(item.deadline is not None for item in state.turn.calls):
            self._services.bell.ring(DEADLINES)

    async def _one_step(
        self, before: State, command: Command, event_writer: EventWriter, interruption: Interruption
    ) -> CheckpointResult:
        progress = self._start_progress(before, command)
        after, checkpoint = await self._effect(
            before, command, event_writer, progress, interruption
        )
        after = self._with_first_token(after, progress)
        if progress.exchanges:
            kept = build_traces(self._services, after, progress.exchanges, _call_type(command))
            after = replace(after, traces=kept)
        state = await event_writer.detach(after)
        try:
            return await self._services.store.write(lambda tx: checkpoint(tx, state))
        except StaleRun:
            # Somebody changed the run meanwhile. If that was a cancel, it wins over whatever came of this.
            if not await self._is_cancelling(state):
                raise
        return await self._services.store.write(
            lambda tx: self._checkpoints.cancel(tx, state, progress)
        )

    def _start_progress(self, before: State, command: Command) -> EffectProgress:
        doing = RUNNING_TOOLS if isinstance(command, RunTools) else ASKING
        answer_id = self._services.ids.new_id(Kind.MESSAGE)
        return EffectProgress(
            answer_id,
            activity=doing,
            agent_id=before.run.agent_id,
            monotonic_ns=self._services.clock.monotonic_ns,
        )

    def _with_first_token(self, state: State, progress: EffectProgress) -> State:
        """How long whoever sent the message had to wait for the first of an answer."""
        if state.run.ttft_ns is not None or progress.first_token_ns is None:
            return state
        clock = self._services.clock
        since_then = timedelta(microseconds=(clock.monotonic_ns() - progress.first_token_ns) / 1000)
        waited = clock.now() - since_then - state.run.created_at
        ttft_ns = max(waited // timedelta(microseconds=1), 0) * 1_000
        return replace(state, run=replace(state.run, ttft_ns=ttft_ns))

    async def _effect(
        self,
        before: State,
        command: Command,
        event_writer: EventWriter,
        progress: EffectProgress,
        interruption: Interruption,
    ) -> tuple[State, Checkpoint]:
        """The state after the effect, and the checkpoint that is due now."""
        at = self._checkpoints
        try:
            async with interruption.scope(progress):
                after = await self._execute(before, command, event_writer, progress)
        except Interrupted as struck:
            stop = partial(at.cancel, progress=progress)
            if struck.end is not None:
                stop = partial(at.stop, progress=progress, end=struck.end)
            return await self._partial_state(before, progress), stop
        except ModelError as error:
            failure = RunFailure(error.kind, error.summary, error.detail)
            reason = StopReason(error.stop_reason)
        except Exception as error:
            log.exception("run.failed")
            summary = "An error occurred during agent execution."
            trace = traceback.format_exc(limit=-TRACEBACK_FRAMES)
            failure = RunFailure("internal_error", summary, str(error), traceback=trace)
            reason = StopReason.ERROR
        else:
            return after, at.advance
        after = await self._partial_state(before, progress)
        return after, partial(at.fail, failure=failure, reason=reason)

    async def _partial_state(self, before: State, progress: EffectProgress) -> State:
        """The state as an effect left it that did not come to its end."""
        state = with_attempts(with_partial_results(before, progress), progress)
        return await with_partial_usage(self._services, state, progress)

    async def _is_cancelling(self, state: State) -> bool:
        run = await self._services.store.read(lambda tx: tx.runs.find(state.run.id))
        return run is not None and run.status is RunStatus.CANCELLING

    async def _execute(
        self, state: State, command: Command, event_writer: EventWriter, progress: EffectProgress
    ) -> State:
        match command:
            case AskModel():
                return await ask_model(self._services, state, command, event_writer, progress)
            case RunTools():
                return await run_tools(self._services, state, command, progress)
            case Compact():
                return await compact(self._services, state, command, progress)
            case _:
                raise Bug(f"{type(command).__name__} is a checkpoint's affair.")


def _call_type(command: Command) -> CallType:
    return CallType.SUMMARIZATION if isinstance(command, Compact) else CallType.AGENT_STEP
