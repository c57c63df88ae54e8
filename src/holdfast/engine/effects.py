"""Executing a command: its effect, whether it completes, is interrupted or fails, becomes an EffectResult."""

import logging
import traceback
from datetime import timedelta

from msgspec.structs import replace

from holdfast.core.ids import Kind
from holdfast.core.runs import RunFailure, StopReason
from holdfast.core.traces import CallType
from holdfast.core.turn import AskModel, Command, Compact, EndTurn, RunTools
from holdfast.engine.ask_model import ask_model
from holdfast.engine.attempts import with_attempts
from holdfast.engine.compact import compact
from holdfast.engine.event_writer import EventWriter
from holdfast.engine.interruption import Interrupted, Interruption
from holdfast.engine.lease_check import check_lease, is_lost
from holdfast.engine.partial_usage import with_partial_usage
from holdfast.engine.progress import EffectProgress, EffectResult
from holdfast.engine.provider_traces import build_traces
from holdfast.engine.run_tools import run_tools, with_partial_results
from holdfast.engine.state import State, with_progress
from holdfast.engine.tool_progress import ProgressReports, VersionCheck
from holdfast.engine.watchdog import ASKING, RUNNING_TOOLS
from holdfast.errors import Bug, ModelError
from holdfast.ports.services import Services

log = logging.getLogger(__name__)

# How many of the innermost calls of an internal error are stored with its step.
TRACEBACK_FRAMES = 20


class Effects:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._versions = VersionCheck(services)

    async def execute(
        self, state: State, command: Command, event_writer: EventWriter, interruption: Interruption
    ) -> EffectResult:
        """Execute the command. No error of the model, of a tool or of our own leaves this function, but LeaseLost and
        RunFenced do: then the run is another server's."""
        check_lease(self._services, state.run)
        progress = self._start_progress(state, command)
        result = await self._attempt(state, command, event_writer, progress, interruption)
        state = self._with_first_token(result.state, progress)
        if _is_progress(command):
            # Interruptions are counted from here.
            state = with_progress(state, recoveries=0)
        if progress.exchanges:
            traces = build_traces(self._services, state, progress.exchanges, _call_type(command))
            state = replace(state, traces=traces)
        return replace(result, state=await event_writer.detach(state))

    def _start_progress(self, state: State, command: Command) -> EffectProgress:
        return EffectProgress(
            self._services.ids.new_id(Kind.MESSAGE),
            activity=RUNNING_TOOLS if isinstance(command, RunTools) else ASKING,
            agent_id=state.run.agent_id,
            monotonic_ns=self._services.clock.monotonic_ns,
        )

    async def _attempt(
        self,
        state: State,
        command: Command,
        event_writer: EventWriter,
        progress: EffectProgress,
        interruption: Interruption,
    ) -> EffectResult:
        try:
            async with interruption.scope(progress):
                return EffectResult(
                    await self._run_effect(state, command, event_writer, progress), progress
                )
        except Interrupted as interrupted:
            # Without an end of its own it is a cancel, which is recorded in the store.
            end = interrupted.end or EndTurn(StopReason.CANCELLED)
            return EffectResult(await self._partial_state(state, progress), progress, end)
        except ModelError as error:
            failure = RunFailure(error.kind, error.summary, error.detail)
            end = EndTurn(StopReason(error.stop_reason), failure)
        except Exception as error:
            if is_lost(error):
                raise
            log.exception("run.failed")
            summary = "An error occurred during agent execution."
            trace = traceback.format_exc(limit=-TRACEBACK_FRAMES)
            failure = RunFailure("internal_error", summary, str(error), traceback=trace)
            end = EndTurn(StopReason.ERROR, failure)
        partial = await self._partial_state(state, progress)
        return EffectResult(partial, progress, end, has_failed=True)

    async def _run_effect(
        self, state: State, command: Command, event_writer: EventWriter, progress: EffectProgress
    ) -> State:
        match command:
            case AskModel():
                return await ask_model(self._services, state, command, event_writer, progress)
            case RunTools():
                reports = ProgressReports(self._services, event_writer, self._versions)
                return await run_tools(self._services, state, command, progress, reports)
            case Compact():
                return await compact(self._services, state, command, progress)
            case _:
                raise Bug(f"{type(command).__name__} has no effect: a checkpoint stores it.")

    async def _partial_state(self, state: State, progress: EffectProgress) -> State:
        """The state with what an incomplete effect has produced and used."""
        state = with_attempts(with_partial_results(state, progress), progress)
        return await with_partial_usage(self._services, state, progress)

    def _with_first_token(self, state: State, progress: EffectProgress) -> State:
        """The state whose run has its time to the first token, counted from when the message was sent."""
        if state.run.ttft_ns is not None or progress.first_token_ns is None:
            return state
        clock = self._services.clock
        since_then = timedelta(microseconds=(clock.monotonic_ns() - progress.first_token_ns) / 1000)
        waited = clock.now() - since_then - state.run.created_at
        ttft_ns = max(waited // timedelta(microseconds=1), 0) * 1_000
        return replace(state, run=replace(state.run, ttft_ns=ttft_ns))


def _is_progress(command: Command) -> bool:
    """Whether the command has done something: to store what became of interrupted calls is no progress."""
    return not isinstance(command, RunTools) or bool(command.planned)


def _call_type(command: Command) -> CallType:
    return CallType.SUMMARIZATION if isinstance(command, Compact) else CallType.AGENT_STEP
