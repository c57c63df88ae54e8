"""The event log with Redis Streams beside the store, so that other processes can read a run as it happens.

Redis is only the quick way: the store has everything a moment later. So nothing waits for Redis, and whatever
is missing there, a gap, a lost key or all of it, is read from the store.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from holdfast.adapters.event_log.live import Live
from holdfast.adapters.event_log.sql import POLL_SECONDS, SqlEventLog
from holdfast.core.events import Event, RunEnded
from holdfast.errors import SettingInvalid
from holdfast.ports.store import Store

log = logging.getLogger(__name__)

# How long a reader waits for Redis alone. In a silence of this length it looks into the store too, in case
# that the writer has lost its way to Redis.
BLOCK_SECONDS: Final = 1.0
# Longer than a read may block.
_ANSWER_SECONDS: Final = 5.0
# Redis is left alone for so long when it cannot be reached.
RETRY_SECONDS: Final = 1.0
# For readers that are still under way at the end; all others find the run in the store.
ENDED_SECONDS: Final = 60
# The key of a run whose process has died goes away by itself. A silent run may outlast it: its next event makes
# a new key.
SILENT_SECONDS: Final = 3_600

_decoder = msgspec.json.Decoder(list[Event])


def key_of(run_id: str) -> str:
    return f"holdfast:events:{run_id}"


class RedisEventLog(SqlEventLog):
    def __init__(self, store: Store, redis: Redis) -> None:
        super().__init__(store)
        self._redis = redis
        self._outbox = _Outbox(redis)

    @classmethod
    def connect(cls, store: Store, url: str) -> "RedisEventLog":
        """Nothing is connected before the first event. SettingInvalid if the address cannot be read."""
        try:
            redis = Redis.from_url(
                url,
                socket_connect_timeout=_ANSWER_SECONDS,
                socket_timeout=_ANSWER_SECONDS,
                # There is always something better to do than to try again: to look into the store.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise SettingInvalid("The address of Redis cannot be read.") from error
        return cls(store, redis)

    def publish(self, events: Sequence[Event]) -> None:
        live = self._here.get(events[0].run_id) if events else None
        super().publish(events)
        if live is not None:
            self._outbox.put(events[0].run_id, live)

    async def aclose(self) -> None:
        await super().aclose()
        await self._outbox.aclose()
        await self._redis.aclose()

    async def _fill(self, run_id: str, live: Live) -> None:
        while not live.closed:
            try:
                entries = await self._read(run_id, live.last)
            except RedisError as error:
                log.warning("redis.unreachable", extra={"run_id": run_id, "why": str(error)})
                entries, gap = (), True
            else:
                gap = not _taken(live, entries)
            if entries and not gap:
                if live.ended:
                    return
                continue
            known = live.last
            if not await self._catch_up(run_id, live):
                return
            if gap and live.last == known:
                await asyncio.sleep(POLL_SECONDS)

    async def _read(self, run_id: str, after: int) -> Sequence[Mapping[bytes, bytes]]:
        """Entries with an event of a higher number; none after a silence."""
        key = key_of(run_id)
        block = int(BLOCK_SECONDS * 1_000)
        # redis-py types the answer for both of its protocols at once.
        answer: Any = await self._redis.xread({key: f"{after}-0"}, block=block)
        return [fields for _, fields in answer[0][1]] if answer else ()


class _Outbox:
    """Sends each run's events to its stream, many at a time. An entry's id is the number of its last event,
    so one that is sent twice is there once."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: dict[str, Live] = {}
        self._sent: dict[str, int] = {}
        self._sending: asyncio.Task[None] | None = None

    def put(self, run_id: str, live: Live) -> None:
        """There are new events to send. What Redis does not get in time is forgotten with ``live``."""
        self._waiting[run_id] = live
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="redis-outbox")

    async def aclose(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        while self._waiting:
            due, self._waiting = self._waiting, {}
            try:
                await self._send(due)
            except RedisError as error:
                log.warning("redis.unreachable", extra={"runs": len(due), "why": str(error)})
                self._put_back(due)
                await asyncio.sleep(RETRY_SECONDS)

    def _put_back(self, due: Mapping[str, Live]) -> None:
        """Readers find the end of a run in the store, so that nothing piles up here."""
        for run_id, live in due.items():
            if live.closed:
                self._sent.pop(run_id, None)
            else:
                self._waiting.setdefault(run_id, live)

    async def _send(self, due: Mapping[str, Live]) -> None:
        batches = {run_id: self._unsent(run_id, live) for run_id, live in due.items()}
        pipeline = self._redis.pipeline(transaction=False)
        for run_id, events in batches.items():
            if events:
                _add(pipeline, run_id, events, due[run_id])
        for answer in await pipeline.execute(raise_on_error=False):
            if isinstance(answer, Exception) and not _is_there_already(answer):
                raise answer
        for run_id, events in batches.items():
            self._note(run_id, events, due[run_id])

    def _unsent(self, run_id: str, live: Live) -> Sequence[Event]:
        return live.after(max(self._sent.get(run_id, 0), live.floor))

    def _note(self, run_id: str, events: Sequence[Event], live: Live) -> None:
        if events:
            self._sent[run_id] = events[-1].seq
        if self._unsent(run_id, live):
            self._waiting.setdefault(run_id, live)
        elif live.closed:
            self._sent.pop(run_id, None)


def _add(pipeline: Any, run_id: str, events: Sequence[Event], live: Live) -> None:
    ended = isinstance(events[-1].fact, RunEnded)
    entry = {"events": msgspec.json.encode(events), "durable": live.durable}
    # Readers that are behind what memory keeps go to the store here too.
    pipeline.xadd(key_of(run_id), entry, id=f"{events[-1].seq}-0", minid=live.floor)
    pipeline.expire(key_of(run_id), ENDED_SECONDS if ended else SILENT_SECONDS)


def _is_there_already(answer: Exception) -> bool:
    return isinstance(answer, ResponseError) and "equal or smaller" in str(answer)


def _taken(live: Live, entries: Sequence[Mapping[bytes, bytes]]) -> bool:
    """Add what follows without a gap. Only the store knows whether a crash has left the gap."""
    for entry in entries:
        try:
            told, durable = _decoder.decode(entry[b"events"]), int(entry[b"durable"])
        except (KeyError, ValueError):
            # Another version of Holdfast, or somebody else, has written this.
            return False
        events = [event for event in told if event.seq > live.last]
        if events and events[0].seq != live.last + 1:
            return False
        live.add(events)
        live.settle(durable)
    return True
