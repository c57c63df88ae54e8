"""Writing one checkpoint until the store has it, exactly once."""

from collections.abc import Callable

from holdfast.engine.checkpoint.checkpoints import CheckpointResult
from holdfast.errors import RunFenced
from holdfast.ports.store import Transaction


class CheckpointAttempt:
    """A checkpoint that is written again after an error of the store. The store may report an error although it has
    committed: then the next attempt finds the checkpoint there, by its number, and writes nothing."""

    def __init__(self) -> None:
        self._last: CheckpointResult | None = None

    def save(
        self, tx: Transaction, save: Callable[[Transaction], CheckpointResult | None]
    ) -> CheckpointResult | None:
        """Save the checkpoint, unless the last attempt did. Runs inside the caller's transaction."""
        if self._last is None or not _is_stored(tx, self._last):
            self._last = save(tx)
        return self._last


def _is_stored(tx: Transaction, attempted: CheckpointResult) -> bool:
    run = attempted.state.run
    # Locked: a commit whose connection was lost may still be going on.
    stored = tx.runs.get_for_update(run.organization_id, run.id)
    if stored.fence != run.fence:
        # Another server has the run: its checkpoints have the same numbers.
        raise RunFenced(run.id)
    return stored.progress.checkpoints >= run.progress.checkpoints
