"""The event log with Redis Streams in addition to the store, so that other processes can read a run while it runs.

Redis is only faster: the store has every event a moment later. So nothing waits for Redis, and whatever is missing there
is read from the store.
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
from holdfast.adapters.event_log.sql import POLL_SECONDS_WITHOUT_BELL, SqlEventLog
from holdfast.core.events import Event, RunEnded
from holdfast.errors import SettingInvalid
from holdfast.ports.bell import Bell
from holdfast.ports.store import Store

log = logging.getLogger(__name__)

# How long a reader waits for Redis before it also reads the store, because the writer may have lost its connection.
BLOCK_SECONDS: Final = 1.0
# Longer than a read may block.
_SOCKET_TIMEOUT_SECONDS: Final = 5.0
# How long to wait before the next attempt when Redis cannot be reached.
RETRY_SECONDS: Final = 1.0
# How long the stream of an ended run stays for readers that are still reading; others read the store.
ENDED_TTL_SECONDS: Final = 60
# How long the stream of a run stays after its last event, so that streams of dead processes are deleted. A run that is
# silent for longer gets a new stream with its next event.
SILENT_TTL_SECONDS: Final = 3_600

_decoder = msgspec.json.Decoder(list[Event])


def stream_key(run_id: str) -> str:
    return f"holdfast:events:{run_id}"


class RedisEventLog(SqlEventLog):
    def __init__(self, store: Store, bell: Bell, redis: Redis) -> None:
        super().__init__(store, bell)
        self._redis = redis
        self._outbox = _Outbox(redis)

    @classmethod
    def connect(cls, store: Store, bell: Bell, url: str) -> "RedisEventLog":
        """Create the log; the connection is opened with the first event. SettingInvalid if the URL is malformed."""
        try:
            redis = Redis.from_url(
                url,
                socket_connect_timeout=_SOCKET_TIMEOUT_SECONDS,
                socket_timeout=_SOCKET_TIMEOUT_SECONDS,
                # No retries: reading the store is better.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise SettingInvalid("The address of Redis cannot be read.") from error
        return cls(store, bell, redis)

    def publish(self, events: Sequence[Event]) -> None:
        buffer = self._local.get(events[0].run_id) if events else None
        super().publish(events)
        if buffer is not None:
            self._outbox.put(events[0].run_id, buffer)

    def _ring(self, run_id: str) -> None:
        """Readers in other processes hear of new events by Redis, or see them in the store a moment later."""

    async def aclose(self) -> None:
        await super().aclose()
        await self._outbox.aclose()
        await self._redis.aclose()

    async def _fill(self, run_id: str, buffer: EventBuffer) -> None:
        while not buffer.is_closed:
            try:
                entries = await self._read_entries(run_id, buffer.last_seq)
            except RedisError as error:
                log.warning("redis.unreachable", extra={"run_id": run_id, "why": str(error)})
                entries, gap = (), True
            else:
                gap = not _append_entries(buffer, entries)
            if entries and not gap:
                if buffer.has_ended:
                    return
                continue
            known = buffer.last_seq
            if not await self._catch_up(run_id, buffer):
                return
            if gap and buffer.last_seq == known:
                await asyncio.sleep(POLL_SECONDS_WITHOUT_BELL)

    async def _read_entries(self, run_id: str, after: int) -> Sequence[Mapping[bytes, bytes]]:
        """Wait for entries with events of a higher number and return them; none after ``BLOCK_SECONDS``."""
        key = stream_key(run_id)
        block = int(BLOCK_SECONDS * 1_000)
        # The type of redis-py covers both of its protocols.
        answer: Any = await self._redis.xread({key: f"{after}-0"}, block=block)
        return [fields for _, fields in answer[0][1]] if answer else ()


class _Outbox:
    """Sends the events of each run to its stream, in batches. The id of an entry is the number of its last event, so an
    entry that is sent twice is stored once."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._pending: dict[str, EventBuffer] = {}
        self._sent_seqs: dict[str, int] = {}
        self._send_task: asyncio.Task[None] | None = None

    def put(self, run_id: str, buffer: EventBuffer) -> None:
        """Send the new events of the run. Events that the buffer has dropped by then are not sent."""
        self._pending[run_id] = buffer
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
        """Send these again later, except runs that are closed: their readers find the end in the store."""
        for run_id, buffer in due.items():
            if buffer.is_closed:
                self._sent_seqs.pop(run_id, None)
            else:
                self._pending.setdefault(run_id, buffer)

    async def _send(self, due: Mapping[str, EventBuffer]) -> None:
        batches = {run_id: self._unsent_events(run_id, buffer) for run_id, buffer in due.items()}
        pipeline = self._redis.pipeline(transaction=False)
        for run_id, events in batches.items():
            if events:
                _add_entry(pipeline, run_id, events, due[run_id])
        for answer in await pipeline.execute(raise_on_error=False):
            if isinstance(answer, Exception) and not _is_duplicate(answer):
                raise answer
        for run_id, events in batches.items():
            self._mark_sent(run_id, events, due[run_id])

    def _unsent_events(self, run_id: str, buffer: EventBuffer) -> Sequence[Event]:
        return buffer.events_after(max(self._sent_seqs.get(run_id, 0), buffer.floor))

    def _mark_sent(self, run_id: str, events: Sequence[Event], buffer: EventBuffer) -> None:
        if events:
            self._sent_seqs[run_id] = events[-1].seq
        if self._unsent_events(run_id, buffer):
            self._pending.setdefault(run_id, buffer)
        elif buffer.is_closed:
            self._sent_seqs.pop(run_id, None)


def _add_entry(pipeline: Any, run_id: str, events: Sequence[Event], buffer: EventBuffer) -> None:
    ended = isinstance(events[-1].fact, RunEnded)
    entry = {"events": msgspec.json.encode(events), "durable": buffer.durable_seq}
    # Readers that are behind the buffer read the store, so the stream is trimmed like the buffer.
    pipeline.xadd(stream_key(run_id), entry, id=f"{events[-1].seq}-0", minid=buffer.floor)
    pipeline.expire(stream_key(run_id), ENDED_TTL_SECONDS if ended else SILENT_TTL_SECONDS)


def _is_duplicate(answer: Exception) -> bool:
    return isinstance(answer, ResponseError) and "equal or smaller" in str(answer)


def _append_entries(buffer: EventBuffer, entries: Sequence[Mapping[bytes, bytes]]) -> bool:
    """Add the events that follow without a gap; return whether there was none. The store shows whether a gap is due to a
    crash."""
    for entry in entries:
        try:
            received, durable = _decoder.decode(entry[b"events"]), int(entry[b"durable"])
        except (KeyError, ValueError):
            # Written by another version of Holdfast, or by another program.
            return False
        events = [event for event in received if event.seq > buffer.last_seq]
        if events and events[0].seq != buffer.last_seq + 1:
            return False
        buffer.add(events)
        buffer.mark_durable(durable)
    return True
