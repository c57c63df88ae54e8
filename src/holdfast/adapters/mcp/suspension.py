"""Whether this machine was suspended, which leaves connections dead without a sign of it."""

import time
from typing import Final

# Clocks that nobody sets, of Linux and macOS: one that goes on while the machine is suspended, and one that stands still.
_CLOCKS: Final = (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW"))


def read_suspended_seconds() -> float:
    """How long it was suspended in all, where a system tells it."""
    for moving, standing in _CLOCKS:
        if hasattr(time, moving) and hasattr(time, standing):
            return time.clock_gettime(getattr(time, moving)) - time.clock_gettime(
                getattr(time, standing)
            )
    return 0.0
