"""What holds of every history that a provider accepts."""

from collections.abc import Iterable

from holdfast.core.messages import Message, Role


def assert_calls_answered(rows: Iterable[Message]) -> None:
    """Every call has exactly one result, before the next message of a user or the system."""
    waiting: set[str] = set()
    for row in rows:
        if row.role in (Role.USER, Role.SYSTEM):
            assert not waiting, f"{waiting} unanswered before {row.role}"
        waiting |= {call.id for call in row.tool_calls}
        for item in row.tool_returns:
            assert item.call_id in waiting, f"{item.call_id} has no open call"
            waiting.discard(item.call_id)
    assert not waiting, f"{waiting} unanswered"
