"""The clocks and ids of a scenario: virtual time, and ids derived from its seed."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from holdfast.core.ids import Kind

DAWN = datetime(2026, 1, 1, tzinfo=UTC)
_SMALLEST_OFFSET = timedelta(seconds=1)


class LoopClock:
    """The virtual time of the loop, wrong by ``skew``; no two calls return the same instant. Like the clock of the system,
    it is corrected by what the database says."""

    def __init__(self, skew: timedelta = timedelta(0)) -> None:
        self._looks = 0
        self._skew = skew
        self._offset = timedelta(0)

    def now(self) -> datetime:
        return self._read() + self._offset

    def compare(self, database_now: datetime) -> None:
        offset = database_now - self._read()
        self._offset = offset if abs(offset) >= _SMALLEST_OFFSET else timedelta(0)

    def monotonic_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _read(self) -> datetime:
        self._looks += 1
        seconds = asyncio.get_running_loop().time()
        return DAWN + self._skew + timedelta(seconds=seconds, microseconds=self._looks)


class SeededIds:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def new_id(self, kind: Kind) -> str:
        return f"{kind}-{self.new_otid()}"

    def new_otid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))
