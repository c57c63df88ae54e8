"""Runs that no try can carry on, as if our own code broke on them: they must be given up, and nothing with them."""

from tests.simulation.chance import Chance, InjectedError
from tests.simulation.ledger import Ledger

from holdfast.core.runs import Run, RunStatus
from holdfast.engine.checkpoint import CheckpointResult, Checkpoints
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State
from holdfast.ports.store import Transaction


class BreakingCheckpoints(Checkpoints, frozen=True):
    nature: Chance
    ledger: Ledger

    def claim(self, tx: Transaction, run_id: str) -> CheckpointResult | None:
        run = tx.runs.find(run_id)
        if run is not None:
            self._may_break(run, "claim")
        return super().claim(tx, run_id)

    def advance(self, tx: Transaction, state: State) -> CheckpointResult:
        if state.run.status is not RunStatus.QUEUED:
            self._may_break(state.run, "advance")
        return super().advance(tx, state)

    def cancel(self, tx: Transaction, state: State, progress: EffectProgress) -> CheckpointResult:
        self._may_break(state.run, "advance")
        return super().cancel(tx, state, progress)

    def _may_break(self, run: Run, kind: str) -> None:
        # Those that have to do with calls of another run are few, and the most delicate.
        beside_others = run.is_answer or run.request.compaction is not None
        if self.nature.break_point(run.id, 0.5 if beside_others else 0.1) == kind:
            self.ledger.cursed.add(run.id)
            raise InjectedError(f"{run.id} cannot be carried on")
