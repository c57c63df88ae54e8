"""The table of a run's status transitions."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.lifecycle import (
    FINAL,
    LIVE,
    TRANSITIONS,
    Signal,
    advance,
    ending_signal,
    is_over,
)
from holdfast.core.runs import RunStatus, StopReason
from holdfast.errors import IllegalTransition

signals = st.lists(st.sampled_from(Signal), max_size=12)


def walk_statuses(start: RunStatus, signals: list[Signal]) -> list[RunStatus]:
    """Every status on the way through the signals; illegal signals are refused and change nothing."""
    path = [start]
    for signal in signals:
        try:
            path.append(advance(path[-1], signal))
        except IllegalTransition:
            path.append(path[-1])
    return path


@pytest.mark.parametrize("status", sorted(FINAL))
@pytest.mark.parametrize("signal", Signal)
def test_a_finished_run_accepts_no_signal(status: RunStatus, signal: Signal) -> None:
    with pytest.raises(IllegalTransition):
        advance(status, signal)


@given(signals)
def test_an_ended_run_never_changes(given: list[Signal]) -> None:
    path = walk_statuses(RunStatus.QUEUED, given)
    for before, after in pairwise(path):
        assert before not in FINAL or after is before


@given(signals)
def test_no_run_goes_back_to_the_queue(given: list[Signal]) -> None:
    path = walk_statuses(RunStatus.QUEUED, given)
    left = [index for index, status in enumerate(path) if status is not RunStatus.QUEUED]
    assert not left or RunStatus.QUEUED not in path[left[0] :]


@given(signals)
def test_a_cancel_on_record_can_only_end_as_cancelled(given: list[Signal]) -> None:
    path = walk_statuses(RunStatus.CANCELLING, given)
    assert set(path) <= {RunStatus.CANCELLING, RunStatus.CANCELLED}


@given(signals)
def test_a_paused_run_is_answered_or_cancelled_but_never_both(given: list[Signal]) -> None:
    path = set(walk_statuses(RunStatus.PAUSED, given))
    assert not {RunStatus.ANSWERED, RunStatus.CANCELLED} <= path


def test_every_status_but_the_final_ones_has_a_way_on() -> None:
    assert {status for status, _ in TRANSITIONS} == set(RunStatus) - FINAL


def test_every_status_can_be_reached_from_the_queue() -> None:
    reached = {RunStatus.QUEUED}
    for _ in RunStatus:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(RunStatus)


@pytest.mark.parametrize("reason", StopReason)
def test_every_stop_reason_ends_a_run_that_may_end_so(reason: StopReason) -> None:
    start = RunStatus.CANCELLING if reason is StopReason.CANCELLED else RunStatus.RUNNING
    assert is_over(advance(start, ending_signal(reason, start)))


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (StopReason.END_TURN, RunStatus.COMPLETED),
        (StopReason.TOOL_RULE, RunStatus.COMPLETED),
        (StopReason.MAX_STEPS, RunStatus.COMPLETED),
        (StopReason.REQUIRES_APPROVAL, RunStatus.PAUSED),
        (StopReason.LLM_API_ERROR, RunStatus.FAILED),
        (StopReason.INVALID_TOOL_CALL, RunStatus.FAILED),
        (StopReason.MAX_TOKENS_EXCEEDED, RunStatus.FAILED),
    ],
)
def test_a_stop_reason_means_one_status(reason: StopReason, status: RunStatus) -> None:
    """Wire-v1 §5.3."""
    assert advance(RunStatus.RUNNING, ending_signal(reason, RunStatus.RUNNING)) is status


def test_live_and_over_are_opposites() -> None:
    assert {status for status in RunStatus if not is_over(status)} == LIVE
