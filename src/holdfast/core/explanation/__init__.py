"""Explaining a run: what it is doing, what it waits for, and what can be done.

Every run has an explanation in every state. ``usecases.explanation`` loads the facts.
"""

from msgspec.structs import replace

from holdfast.core.explanation.ended import explain_ended
from holdfast.core.explanation.live import (
    explain_cancelling,
    explain_paused,
    explain_queued,
    explain_running,
)
from holdfast.core.explanation.types import (
    AwaitedCall,
    Cancel,
    Decide,
    Explanation,
    Facts,
    Phase,
    Remedy,
    SendResults,
)
from holdfast.core.lifecycle import HOLDING
from holdfast.core.runs import RunStatus

__all__ = [
    "AwaitedCall",
    "Cancel",
    "Decide",
    "Explanation",
    "Facts",
    "Phase",
    "Remedy",
    "SendResults",
    "explain",
]


def explain(facts: Facts) -> Explanation:
    explanation = _explain_status(facts)
    if facts.has_worker or facts.run.status not in HOLDING:
        return explanation
    return replace(
        explanation,
        summary=f"{explanation.summary} No worker of this server executes it.",
        by_itself="If another process executes it, it continues there; if that process died, the next start continues it.",
    )


def _explain_status(facts: Facts) -> Explanation:
    match facts.run.status:
        case RunStatus.QUEUED:
            return explain_queued(facts)
        case RunStatus.RUNNING:
            return explain_running(facts)
        case RunStatus.CANCELLING:
            return explain_cancelling(facts)
        case RunStatus.PAUSED:
            return explain_paused(facts)
        case _:
            return explain_ended(facts)
