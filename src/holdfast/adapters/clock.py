"""The system clock and random ids."""

import asyncio
import time
import uuid
from datetime import UTC, datetime

from holdfast.core.ids import Kind


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RandomIds:
    def new_id(self, kind: Kind) -> str:
        return f"{kind}-{uuid.uuid4()}"

    def new_otid(self) -> str:
        return str(uuid.uuid4())
