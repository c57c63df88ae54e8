"""Checkpoints that always fail for some runs, as if our own code had a bug: such runs must be ended by force."""

from tests.simulation.chance import Chance, InjectedError
from tests.simulation.ledger import Ledger

from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.turn import Command, EndTurn
from holdfast.engine.checkpoint import CheckpointResult, Checkpoints
from holdfast.engine.progress import EffectResult
from holdfast.ports.store import Transaction


class BreakingCheckpoints(Checkpoints, frozen=True):
    chance: Chance
    ledger: Ledger

    def save(self, tx: Transaction, effect: EffectResult, command: Command) -> CheckpointResult:
        run = effect.state.run
        is_cancel = isinstance(command, EndTurn) and command.reason is StopReason.CANCELLED
        if run.status is RunStatus.QUEUED:
            self._may_break(run, "claim")
        elif effect.end is None or is_cancel:
            self._may_break(run, "advance")
        return super().save(tx, effect, command)

    def _may_break(self, run: Run, kind: str) -> None:
        # Those that have to do with calls of another run are few, and the most delicate.
        beside_others = run.is_answer or run.request.compaction is not None
        if self.chance.break_point(run.id, 0.5 if beside_others else 0.1) == kind:
            self.ledger.broken_runs.add(run.id)
            raise InjectedError(f"{run.id} cannot be carried on")
