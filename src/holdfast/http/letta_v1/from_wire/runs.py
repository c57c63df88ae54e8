"""Parameters that select events of a run, or runs."""

from collections.abc import Sequence

from holdfast.core.runs import RunStatus
from holdfast.errors import InvalidArgument
from holdfast.http.letta_v1.to_wire.runs import STATUSES

# The largest integer of every database.
_MAX_SEQ = 2**63 - 1


def parse_cursor(value: object) -> int:
    """The number of the last event that a reader has; 0 if it has none."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_SEQ:
        raise InvalidArgument(
            f"'starting_after' must be the seq_id of the last item that you have, a whole number from 0, "
            f"not {value!r:.100}."
        )
    return value


def parse_statuses(names: Sequence[str]) -> tuple[RunStatus, ...]:
    """All statuses that V1 shows under one of these names."""
    unknown = sorted(set(names) - set(STATUSES.values()))
    if unknown:
        raise InvalidArgument(f"'{unknown[0]}' is not a valid RunStatus")
    return tuple(status for status, name in STATUSES.items() if name in names)
