"""How a run's status may change. Everything that affects the status of a run is in this file.

    queued ─claim─► running ─end─► completed │ failed │ paused
      │                │                                 ├─answer─► answered
      │                └─cancel─► cancelling ─end─┐      │
      └────────────cancel─────────────────────────┴──────┴─cancel─► cancelled

``completed``, ``failed``, ``cancelled`` and ``answered`` are final. A paused run waits for a person; it is either
answered (by a new run) or cancelled, never both: the store applies each change as compare-and-set.
"""

from enum import StrEnum
from typing import Final

from holdfast.core.runs import RunStatus, StopReason
from holdfast.errors import IllegalTransition


class Signal(StrEnum):
    """What may happen to a run."""

    CLAIM = "claim"
    COMPLETE = "complete"
    PAUSE = "pause"
    FAIL = "fail"
    CANCEL = "cancel"
    CONFIRM_CANCEL = "confirm_cancel"
    ANSWER = "answer"


TRANSITIONS: Final[dict[tuple[RunStatus, Signal], RunStatus]] = {
    (RunStatus.QUEUED, Signal.CLAIM): RunStatus.RUNNING,
    (RunStatus.QUEUED, Signal.FAIL): RunStatus.FAILED,
    (RunStatus.QUEUED, Signal.CANCEL): RunStatus.CANCELLED,
    (RunStatus.RUNNING, Signal.COMPLETE): RunStatus.COMPLETED,
    (RunStatus.RUNNING, Signal.PAUSE): RunStatus.PAUSED,
    (RunStatus.RUNNING, Signal.FAIL): RunStatus.FAILED,
    (RunStatus.RUNNING, Signal.CANCEL): RunStatus.CANCELLING,
    # After a recorded cancel the run can only end as cancelled.
    (RunStatus.CANCELLING, Signal.CONFIRM_CANCEL): RunStatus.CANCELLED,
    (RunStatus.PAUSED, Signal.ANSWER): RunStatus.ANSWERED,
    (RunStatus.PAUSED, Signal.CANCEL): RunStatus.CANCELLED,
}

LIVE: Final = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CANCELLING})
# A run that holds its thread: no other run may start there.
HOLDING: Final = frozenset({RunStatus.RUNNING, RunStatus.CANCELLING})
# Runs that no worker works on: queued, or waiting for a person.
WAITING: Final = frozenset({RunStatus.QUEUED, RunStatus.PAUSED})
UNSUCCESSFUL: Final = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})
FINAL: Final = frozenset(
    {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.ANSWERED}
)

# The signal of each stop reason (wire-v1 §5.3). A reason that is not listed is a failure.
_ENDINGS: Final[dict[StopReason, Signal]] = {
    StopReason.END_TURN: Signal.COMPLETE,
    StopReason.TOOL_RULE: Signal.COMPLETE,
    StopReason.MAX_STEPS: Signal.COMPLETE,
    StopReason.REQUIRES_APPROVAL: Signal.PAUSE,
    StopReason.CANCELLED: Signal.CONFIRM_CANCEL,
}


def advance(status: RunStatus, signal: Signal) -> RunStatus:
    """The status after the signal; raises if the table has no such change."""
    try:
        return TRANSITIONS[status, signal]
    except KeyError:
        raise IllegalTransition(f"A {status} run does not take the signal {signal}.") from None


def ending_signal(reason: StopReason, status: RunStatus) -> Signal:
    """The signal that ends a run of this status for this reason. A run that no worker has claimed, or that waits for
    a person, is cancelled at once; any other one was marked first, and its cancel is confirmed."""
    if reason is StopReason.CANCELLED and status in WAITING:
        return Signal.CANCEL
    return _ENDINGS.get(reason, Signal.FAIL)


def is_over(status: RunStatus) -> bool:
    """Whether the run has ended, or waits for a person."""
    return status not in LIVE
