"""The loop of a run: decide, execute, checkpoint, and again. One call takes one run to its end."""

import asyncio
import logging
from functools import partial

from holdfast.core.endings import log_fields
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.servers import Claim
from holdfast.core.turn import Command, EndTurn, next_command
from holdfast.engine.budget import time_limit
from holdfast.engine.checkpoint import CheckpointAttempt, CheckpointResult, Checkpoints
from holdfast.engine.effects import Effects
from holdfast.engine.event_writer import EventWriter
from holdfast.engine.force_end import force_end
from holdfast.engine.interruption import Interruption
from holdfast.engine.progress import EffectResult
from holdfast.engine.recovery import load_claimed
from holdfast.engine.report import RunReport
from holdfast.engine.state import State
from holdfast.engine.store_writes import finish, write_until_stored
from holdfast.errors import Bug, RunFenced, StaleRun
from holdfast.ports.bell import CALLBACKS, DEADLINES
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)


def decide(effect: EffectResult) -> Command:
    """What happens next: the run ends if its effect did not complete, else the turn decides."""
    return effect.end or next_command(effect.state.turn, effect.state.policy)


class Runner:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._effects = Effects(services)
        self._checkpoints = Checkpoints(services.clock, services.ids)

    async def run(self, claim: Claim, interruption: Interruption) -> None:
        """Take a claimed run to its end, from its beginning or from where it was left. RunFenced if the claim is no
        longer the last one."""
        result = await self._save_loaded(claim)
        if result is None:
            log.info("run.skipped")
            return
        await self._loop(result, interruption)

    async def force_end(self, claim: Claim, why: str) -> None:
        """End a run for which every attempt to continue has failed."""
        services = self._services
        end = partial(force_end, claim=claim, why=why, clock=services.clock, ids=services.ids)
        forced = await finish(services.store.write(end))
        if forced is None:
            return
        run = forced.run
        # The caller need not be the task of the run, whose log lines have these fields by themselves.
        fields = {"run_id": run.id, "agent_id": run.agent_id, **log_fields(run)}
        log.error("run.retries_exhausted", extra=fields)
        for step in forced.steps:
            services.telemetry.step_ended(step)
        services.telemetry.run_ended(run)
        services.events.publish(forced.events)
        services.bell.ring(CALLBACKS)

    def _load(self, tx: Transaction, claim: Claim) -> CheckpointResult | None:
        loaded = load_claimed(tx, self._services, claim)
        return None if loaded is None else self._checkpoints.save(tx, loaded, decide(loaded))

    async def _loop(self, result: CheckpointResult, interruption: Interruption) -> None:
        """Continue from a checkpoint until the run has ended. If the server stops meanwhile, the run stays as it is
        and another one, or the next start, continues it."""
        services, run = self._services, result.state.run
        services.events.publish(result.events)
        event_writer = EventWriter(services, run)
        report = RunReport(services, result)
        try:
            with time_limit(run, services.clock, interruption):
                while not result.has_ended:
                    effect = await self._effects.execute(
                        result.state, result.command, event_writer, interruption
                    )
                    result = await self._checkpoint(effect, decide(effect))
                    event_writer.continue_from(result.state.run)
                    services.events.publish(result.events)
                    report.on_checkpoint(result)
                    # A cancellation that came during the write is raised here, before the next effect begins.
                    await asyncio.sleep(0)
            self._ring_after_end(result.state)
        finally:
            await event_writer.close()
            report.close()

    async def _save_loaded(self, claim: Claim) -> CheckpointResult | None:
        """Store the first checkpoint of a claim or of a recovery; None if the run is over."""
        attempt, services = CheckpointAttempt(), self._services
        return await write_until_stored(
            services,
            lambda: services.store.write(
                lambda tx: attempt.save(tx, lambda tx: self._load(tx, claim))
            ),
            "starting a run",
        )

    async def _checkpoint(self, effect: EffectResult, command: Command) -> CheckpointResult:
        """Store the effect and the command, however long the store is out of reach: the effect happened and must not
        happen again."""
        attempt = CheckpointAttempt()
        result = await write_until_stored(
            self._services, lambda: self._save(attempt, effect, command), "saving a checkpoint"
        )
        if result is None:
            raise Bug("A checkpoint of an effect has no result.")
        return result

    async def _save(
        self, attempt: CheckpointAttempt, effect: EffectResult, command: Command
    ) -> CheckpointResult | None:
        """A cancel that was recorded meanwhile replaces the command: only the transaction can know of it."""
        store, checkpoints = self._services.store, self._checkpoints
        try:
            return await store.write(
                lambda tx: attempt.save(tx, lambda tx: checkpoints.save(tx, effect, command))
            )
        except RunFenced:
            raise
        except StaleRun:
            if not await self._is_cancelling(effect.state.run):
                raise
        cancel = EndTurn(StopReason.CANCELLED)
        return await store.write(
            lambda tx: attempt.save(tx, lambda tx: checkpoints.save(tx, effect, cancel))
        )

    async def _is_cancelling(self, run: Run) -> bool:
        stored = await self._services.store.read(lambda tx: tx.runs.find(run.id))
        return stored is not None and stored.status is RunStatus.CANCELLING

    def _ring_after_end(self, state: State) -> None:
        """Wake those who wait for deadlines of held calls, and for callbacks to deliver."""
        waits = state.run.status is RunStatus.PAUSED
        if waits and any(item.deadline is not None for item in state.turn.calls):
            self._services.bell.ring(DEADLINES)
        if state.run.request.callback_url is not None:
            self._services.bell.ring(CALLBACKS)
