"""Explaining a run: what it is doing, what it waits for, and what can be done.

Every run has an explanation in every state. ``usecases.explanation`` loads the facts.
"""

from holdfast.core.explanation.ended import explain_ended
from holdfast.core.explanation.live import (
    explain_cancelling,
    explain_paused,
    explain_queued,
    explain_running,
)
from holdfast.core.explanation.owner import add_owner
from holdfast.core.explanation.types import (
    AwaitedCall,
    Cancel,
    Decide,
    Explanation,
    Facts,
    Owner,
    Phase,
    Remedy,
    SendResults,
)
from holdfast.core.lifecycle import LIVE
from holdfast.core.runs import RunStatus

__all__ = [
    "AwaitedCall",
    "Cancel",
    "Decide",
    "Explanation",
    "Facts",
    "Owner",
    "Phase",
    "Remedy",
    "SendResults",
    "explain",
]


def explain(facts: Facts) -> Explanation:
    explanation = _explain_status(facts)
    return add_owner(explanation, facts) if facts.run.status in LIVE else explanation


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
