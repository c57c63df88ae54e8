"""A process whose clock is wrong: what it reads from the system's clock is shifted. Monotonic clocks are right."""

import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

_PACKAGE = "holdfast"


class _AnyDatetime(type):
    """Recognises plain datetimes as well: none of those that the process makes is of the class below."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def shift_clock(seconds: float) -> None:
    """Shift ``time.time`` and, in all modules of the server that are loaded, ``datetime.now``."""
    offset, read_time = timedelta(seconds=seconds), time.time

    class ShiftedDatetime(datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + offset

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE and getattr(module, "datetime", None) is datetime:
            module.datetime = ShiftedDatetime  # type: ignore[attr-defined]  # a name that it imports
    time.time = lambda: read_time() + seconds
