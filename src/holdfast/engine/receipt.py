"""The receipt of a cancel, filled in when the run that was carried has stopped. All in the transaction of its end."""

from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.core.cancellation import Action, forgotten_row_ids
from holdfast.core.messages import Outcome
from holdfast.core.runs import Run
from holdfast.core.steps import COMPACTION, Step
from holdfast.ports.store import Transaction


def with_receipt(
    tx: Transaction, run: Run, step: Step | None, outcomes: Mapping[str, Outcome]
) -> Run:
    """The run with where it was and what became of its calls; a roll-back makes the thread forget what it said."""
    receipt = run.cancellation
    if receipt is None:
        return run
    phase = "tools" if outcomes else _phase(step)
    receipt = replace(receipt, phase=phase, calls=dict(outcomes))
    if receipt.action is Action.ROLLBACK:
        context = tx.messages.context(run.thread_id)
        tx.messages.hide(run.thread_id, forgotten_row_ids(context, run.id))
    return replace(run, cancellation=receipt)


def _phase(step: Step | None) -> str:
    if step is None:
        return "start"
    return "compaction" if step.origin == COMPACTION else "model"
