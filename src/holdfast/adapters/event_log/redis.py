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

from holdfast.adapters.event_log.event_buffer import EventBuffer
from holdfast.adapters.event_log.sql import POLL_SECONDS, SqlEventLog
from holdfast.core.events import Event, RunEnded
from holdfast.errors import SettingInvalid
from holdfast.ports.store import Store

log = logging.getLogger(__name__)

# How long a reader waits for Redis alone. In a silence of this length it looks into the store too, in case
# that the writer has lost its way to Redis.
BLOCK_SECONDS: Final = 1.0
# Longer than a read may block.
_SOCKET_TIMEOUT_SECONDS: Final = 5.0
# Redis is left alone for so long when it cannot be reached.
RETRY_SECONDS: Final = 1.0
# For readers that are still under way at the end; all others find the run in the store.
ENDED_TTL_SECONDS: Final = 60
# The key of a run whose process has died goes away by itself. A silent run may outlast it: its next event makes
# a new key.
SILENT_TTL_SECONDS: Final = 3_600

_decoder = msgspec.json.Decoder(list[Event])


def stream_key(run_id: str) -> str:
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
                socket_connect_timeout=_SOCKET_TIMEOUT_SECONDS,
                socket_timeout=_SOCKET_TIMEOUT_SECONDS,
                # There is always something better to do than to try again: to look into the store.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise SettingInvalid("The address of Redis cannot be read.") from error
        return cls(store, redis)

    def publish(self, events: Sequence[Event]) -> None:
        live = self._local.get(events[0].run_id) if events else None
        super().publish(events)
        if live is not None:
            self._outbox.put(events[0].run_id, live)

    async def aclose(self) -> None:
        await super().aclose()
        await self._outbox.aclose()
        await self._redis.aclose()

    async def _fill(self, run_id: str, live: EventBuffer) -> None:
        while not live.is_closed:
            try:
                entries = await self._read_entries(run_id, live.last_seq)
            except RedisError as error:
                log.warning("redis.unreachable", extra={"run_id": run_id, "why": str(error)})
                entries, gap = (), True
            else:
                gap = not _append_entries(live, entries)
            if entries and not gap:
                if live.has_ended:
                    return
                continue
            known = live.last_seq
            if not await self._catch_up(run_id, live):
                return
            if gap and live.last_seq == known:
                await asyncio.sleep(POLL_SECONDS)

    async def _read_entries(self, run_id: str, after: int) -> Sequence[Mapping[bytes, bytes]]:
        """Entries with an event of a higher number; none after a silence."""
        key = stream_key(run_id)
        block = int(BLOCK_SECONDS * 1_000)
        # redis-py types the answer for both of its protocols at once.
        answer: Any = await self._redis.xread({key: f"{after}-0"}, block=block)
        return [fields for _, fields in answer[0][1]] if answer else ()


class _Outbox:
    """Sends each run's events to its stream, many at a time. An entry's id is the number of its last event,
    so one that is sent twice is there once."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._pending: dict[str, EventBuffer] = {}
        self._sent_seqs: dict[str, int] = {}
        self._send_task: asyncio.Task[None] | None = None

    def put(self, run_id: str, live: EventBuffer) -> None:
        """There are new events to send. What Redis does not get in time is forgotten with ``live``."""
        self._pending[run_id] = live
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.create_task(self._send_all(), name="redis-outbox")

    async def aclose(self) -> None:
        if self._send_task is not None:
            self._send_task.cancel()
            await asyncio.gather(self._send_task, return_exceptions=True)

    async def _send_all(self) -> None:
        while self._pending:
            due, self._pending = self._pending, {}
            try:
                await self._send(due)
            except RedisError as error:
                log.warning("redis.unreachable", extra={"runs": len(due), "why": str(error)})
                self._requeue(due)
                await asyncio.sleep(RETRY_SECONDS)

    def _requeue(self, due: Mapping[str, EventBuffer]) -> None:
        """Readers find the end of a run in the store, so that nothing piles up here."""
        for run_id, live in due.items():
            if live.is_closed:
                self._sent_seqs.pop(run_id, None)
            else:
                self._pending.setdefault(run_id, live)

    async def _send(self, due: Mapping[str, EventBuffer]) -> None:
        batches = {run_id: self._unsent_events(run_id, live) for run_id, live in due.items()}
        pipeline = self._redis.pipeline(transaction=False)
        for run_id, events in batches.items():
            if events:
                _add_entry(pipeline, run_id, events, due[run_id])
        for answer in await pipeline.execute(raise_on_error=False):
            if isinstance(answer, Exception) and not _is_duplicate(answer):
                raise answer
        for run_id, events in batches.items():
            self._mark_sent(run_id, events, due[run_id])

    def _unsent_events(self, run_id: str, live: EventBuffer) -> Sequence[Event]:
        return live.events_after(max(self._sent_seqs.get(run_id, 0), live.floor))

    def _mark_sent(self, run_id: str, events: Sequence[Event], live: EventBuffer) -> None:
        if events:
            self._sent_seqs[run_id] = events[-1].seq
        if self._unsent_events(run_id, live):
            self._pending.setdefault(run_id, live)
        elif live.is_closed:
            self._sent_seqs.pop(run_id, None)


def _add_entry(pipeline: Any, run_id: str, events: Sequence[Event], live: EventBuffer) -> None:
    ended = isinstance(events[-1].fact, RunEnded)
    entry = {"events": msgspec.json.encode(events), "durable": live.durable_seq}
    # Readers that are behind what memory keeps go to the store here too.
    pipeline.xadd(stream_key(run_id), entry, id=f"{events[-1].seq}-0", minid=live.floor)
    pipeline.expire(stream_key(run_id), ENDED_TTL_SECONDS if ended else SILENT_TTL_SECONDS)


def _is_duplicate(answer: Exception) -> bool:
    return isinstance(answer, ResponseError) and "equal or smaller" in str(answer)


def _append_entries(live: EventBuffer, entries: Sequence[Mapping[bytes, bytes]]) -> bool:
    """Add what follows without a gap. Only the store knows whether a crash has left the gap."""
    for entry in entries:
        try:
            told, durable = _decoder.decode(entry[b"events"]), int(entry[b"durable"])
        except (KeyError, ValueError):
            # Another version of Holdfast, or somebody else, has written this.
            return False
        events = [event for event in told if event.seq > live.last_seq]
        if events and events[0].seq != live.last_seq + 1:
            return False
        live.add(events)
        live.mark_durable(durable)
    return True
