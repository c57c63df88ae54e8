"""The deadline of a held call, and what happens when it expires (wire-v1 §6.11)."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from holdfast.core.deadlines import Deadline, OnTimeout
from holdfast.core.expiry import call_deadline
from holdfast.core.runs import RunRequest
from holdfast.core.tool_rules import RequiresApproval

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rule(seconds: float, outcome: OnTimeout) -> RequiresApproval:
    return RequiresApproval(
        tool_name="ask", approval_timeout_seconds=seconds, approval_on_timeout=outcome
    )


@pytest.mark.parametrize(
    ("given", "seconds", "outcome"),
    [
        ([rule(60, OnTimeout.DENY), rule(30, OnTimeout.APPROVE)], 30, OnTimeout.APPROVE),
        # With the same timeout, denying is preferred to approving.
        ([rule(60, OnTimeout.DENY), rule(60, OnTimeout.APPROVE)], 60, OnTimeout.DENY),
    ],
)
def test_of_several_rules_the_shortest_timeout_counts_and_at_equal_ones_the_denial(
    given: list[RequiresApproval], seconds: float, outcome: OnTimeout
) -> None:
    for rules in permutations(given):
        found = call_deadline("ask", RunRequest(), rules, NOW)
        assert found == Deadline(NOW + timedelta(seconds=seconds), outcome)
