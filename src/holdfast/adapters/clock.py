"""The system clock and random ids."""

import asyncio
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.core.ids import Kind

# A difference between two clocks that matters. Below it the time of a round trip decides more.
_SMALLEST_OFFSET: Final = timedelta(seconds=1)


class SystemClock:
    """The clock of this machine, unless the servers' database says that it is wrong: then its time counts, so that all
    servers have the same."""

    def __init__(self) -> None:
        self._offset = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._offset

    def compare(self, database_now: datetime) -> None:
        """Note what time it is by the clock of the database."""
        offset = database_now - datetime.now(UTC)
        self._offset = offset if abs(offset) >= _SMALLEST_OFFSET else timedelta(0)

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RandomIds:
    def new_id(self, kind: Kind) -> str:
        return f"{kind}-{uuid.uuid4()}"

    def new_otid(self) -> str:
        return str(uuid.uuid4())
