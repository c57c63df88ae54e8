"""The deadlines of held calls (wire-v1 §6.11), and the answer that a call gets when its deadline has passed. Pure.

Each call has its own deadline, from the request or from the rule of its tool. An answer removes it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import UNSET

from holdfast.core.deadlines import Deadline, OnTimeout
from holdfast.core.messages import Decision, OpenCall, Outcome, Text, ToolReturn
from holdfast.core.runs import RunRequest
from holdfast.core.tool_rules import RequiresApproval, ToolRule

# The name that a decision by expiry has in place of a person's.
EXPIRY_DECIDER = "holdfast: expired"


def call_deadline(
    tool: str, request: RunRequest, rules: Sequence[ToolRule], now: datetime
) -> Deadline | None:
    """Until when a call of this tool waits; None: without limit. The request takes precedence over the rule."""
    seconds, outcome = _rule_timeout(tool, rules)
    if request.approval_timeout_seconds is not None:
        seconds = request.approval_timeout_seconds
    if seconds is None:
        return None
    outcome = request.approval_on_timeout or outcome
    if any(client.name == tool for client in request.client_tools):
        outcome = OnTimeout.FAIL
    return Deadline(now + timedelta(seconds=seconds), outcome)


def _rule_timeout(tool: str, rules: Sequence[ToolRule]) -> tuple[float | None, OnTimeout]:
    """The time limit of the agent's rules for the tool: the shortest one, and of equal ones the one that denies."""
    timed = [
        (rule.approval_timeout_seconds, rule.approval_on_timeout or OnTimeout.DENY)
        for rule in rules
        if isinstance(rule, RequiresApproval)
        and rule.tool_name == tool
        and rule.approval_timeout_seconds is not UNSET
    ]
    return min(
        timed,
        key=lambda item: (item[0], item[1] is not OnTimeout.DENY),
        default=(None, OnTimeout.DENY),
    )


def first_deadline(calls: Sequence[OpenCall]) -> datetime | None:
    return min((item.deadline.at for item in calls if item.deadline), default=None)


def overdue_calls(calls: Sequence[OpenCall], now: datetime) -> list[OpenCall]:
    return [item for item in calls if item.deadline is not None and item.deadline.at <= now]


def expiry_decisions(calls: Sequence[OpenCall], now: datetime) -> tuple[Decision, ...]:
    """The answers for the calls whose deadline has passed."""
    return tuple(
        _expiry_decision(item.call.id, item.deadline)
        for item in overdue_calls(calls, now)
        if item.deadline is not None
    )


def is_expiry(decision: Decision) -> bool:
    """Whether the deadline decided. A person may choose the same name, but always has a user id."""
    return decision.decided_by == EXPIRY_DECIDER and decision.decided_by_id is None


def _expiry_decision(call_id: str, deadline: Deadline) -> Decision:
    until = deadline.at.isoformat(timespec="seconds")
    if deadline.outcome is OnTimeout.FAIL:
        text = f"Error: the client gave no result until {until}. Whether the tool ran is unknown."
        result = ToolReturn(call_id, None, Outcome.UNKNOWN, (Text(text),))
        return Decision(call_id, approve=False, returned=result, decided_by=EXPIRY_DECIDER)
    return Decision(
        call_id,
        approve=deadline.outcome is OnTimeout.APPROVE,
        reason=f"Nobody answered until {until}.",
        decided_by=EXPIRY_DECIDER,
    )
