"""Delivers callbacks about ended runs from the store's outbox, at least once, with retries.

The outbox row is written with the run's end (``Runs.transition``), so no callback is lost in a crash. The body is
rendered from the store when it is sent. A receiver that hangs only delays callbacks to its own host, and no run.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast import logs
from holdfast.core import callbacks
from holdfast.core.callbacks import CallbackOutcome, ClaimedCallback, DueCallback
from holdfast.core.events import RunEnded
from holdfast.core.messages import Message
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Run
from holdfast.errors import AddressForbidden, BackendError, Bug, Undeliverable
from holdfast.ports.bell import CALLBACKS
from holdfast.ports.outgoing import OutgoingRequest
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# How long one attempt may take (wire-v1 §5.6).
TIMEOUT_SECONDS = 5.0
# The response is not stored; no more than this is read of it.
MAX_RESPONSE_BYTES = 64 * 1024
# The claim of a process that died expires after this long.
CLAIM_SECONDS = 15.0
MAX_CONCURRENT = 32
MAX_CONCURRENT_PER_HOST = 2
# The wait before the second attempt; each further wait is so many times as long, up to the longest.
FIRST_WAIT_SECONDS = 1.0
WAIT_GROWTH = 4.0
LONGEST_WAIT_SECONDS = 3_600.0
# How often the outbox is checked for rows of other processes, because the bell only rings within a process.
POLL_SECONDS = 5.0
STORE_RETRY_SECONDS = 2.0

_PAGE_ROWS = 1_000
_INTERNAL_ERROR = "The server could not deliver it."

# Renders the body from the run, the rows that it stored and its last event.
Render = Callable[[Run, Sequence[Message], RunEnded], bytes]


class EndedRun(Struct, frozen=True):
    """What the body of a callback is rendered from."""

    run: Run
    rows: tuple[Message, ...]
    ended: RunEnded


class CallbackDelivery:
    def __init__(
        self,
        services: Services,
        render: Render,
        *,
        secret: str | None = None,
        first_wait_seconds: float = FIRST_WAIT_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._services = services
        self._render = render
        self._secret = secret
        self._first_wait_seconds = first_wait_seconds
        self._timeout_seconds = timeout_seconds
        self._in_flight: dict[asyncio.Task[None], ClaimedCallback] = {}

    async def run(self) -> None:
        """Deliver until cancelled. Attempts that are not over by then are released, for the next start."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    seconds = await self._start_due(group)
                except BackendError:
                    log.exception("store.unreachable", extra={"while": "looking for callbacks"})
                    seconds = STORE_RETRY_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._services.bell.wait(CALLBACKS)

    async def _start_due(self, group: asyncio.TaskGroup) -> float:
        """Start the attempts that are due, within the limits; returns how long to wait before the next check."""
        now = self._services.clock.now()
        free = MAX_CONCURRENT - len(self._in_flight)
        in_flight = Counter(claimed.host for claimed in self._in_flight.values())

        def load(tx: Transaction) -> tuple[Sequence[DueCallback], datetime | None]:
            due = tx.callbacks.list_due(
                now, limit=free, per_host=MAX_CONCURRENT_PER_HOST, in_flight=in_flight
            )
            return due, tx.callbacks.next_due_at(now)

        due, next_at = await self._services.store.read(load)
        if due:
            await self._start(group, due, now + timedelta(seconds=CLAIM_SECONDS))
        if next_at is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, (next_at - now).total_seconds())

    async def _start(
        self, group: asyncio.TaskGroup, due: Sequence[DueCallback], until: datetime
    ) -> None:
        for claimed in await self._services.store.write(lambda tx: tx.callbacks.claim(due, until)):
            task = group.create_task(self._deliver(claimed), name=f"callback {claimed.run_id}")
            self._in_flight[task] = claimed
            task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        # Another attempt can start now.
        self._services.bell.ring(CALLBACKS)

    async def _deliver(self, claimed: ClaimedCallback) -> None:
        """Make one attempt. No receiver and no bug may affect the delivery of other callbacks."""
        logs.bind(run_id=claimed.run_id)
        try:
            outcome, may_retry = await self._attempt(claimed)
            await self._save_outcome(claimed, outcome, may_retry=may_retry)
        except asyncio.CancelledError:
            now = self._services.clock.now()
            with suppress(BackendError):
                await self._services.store.write(lambda tx: tx.callbacks.release(claimed, now))
            raise
        except BackendError:
            # The claim expires by itself.
            log.exception("store.unreachable", extra={"while": "delivering a callback"})

    async def _attempt(self, claimed: ClaimedCallback) -> tuple[CallbackOutcome, bool]:
        """The outcome of the attempt, and whether another one may succeed."""
        before = CallbackOutcome()
        try:
            ended = await self._services.store.read(lambda tx: _load_ended_run(tx, claimed.run_id))
            if ended is None:
                return CallbackOutcome(error="The run is gone."), False
            logs.bind(agent_id=ended.run.agent_id, organization_id=ended.run.organization_id)
            before = ended.run.callback or before
            if claimed.attempts > self._services.limits.callback_attempts:
                # Each earlier attempt ended with its process, so none has stored an outcome.
                return replace(before, error=_INTERNAL_ERROR), False
            outcome = await self._send(ended)
        except BackendError:
            raise
        except Undeliverable as error:
            return replace(before, error=str(error)), True
        except AddressForbidden as error:
            return replace(before, error=str(error)), False
        except Exception:
            # For instance a run that cannot be read or rendered.
            log.exception("callback.failed")
            return replace(before, error=_INTERNAL_ERROR), True
        return outcome, outcome.error is not None

    async def _send(self, ended: EndedRun) -> CallbackOutcome:
        now = self._services.clock.now()
        body = self._render(ended.run, ended.rows, ended.ended)
        request = OutgoingRequest(
            url=ended.run.request.callback_url or "",
            method="POST",
            headers=callbacks.build_headers(ended.run.id, body, now, self._secret),
            body=body,
            timeout_seconds=self._timeout_seconds,
            max_response_bytes=MAX_RESPONSE_BYTES,
        )
        response = await self._services.outgoing.send(request)
        accepted = 200 <= response.status < 300
        error = None if accepted else f"The receiver answered with the status {response.status}."
        return CallbackOutcome(sent_at=now, status_code=response.status, error=error)

    async def _save_outcome(
        self, claimed: ClaimedCallback, outcome: CallbackOutcome, *, may_retry: bool
    ) -> None:
        due_at = None
        if may_retry and claimed.attempts < self._services.limits.callback_attempts:
            wait = timedelta(seconds=self._wait_seconds(claimed.attempts))
            due_at = self._services.clock.now() + wait
        await self._services.store.write(
            lambda tx: tx.callbacks.record_outcome(claimed, outcome, due_at)
        )
        fields = {"attempt": claimed.attempts, "why": outcome.error, "next_at": due_at}
        if outcome.error is None:
            log.info("callback.delivered", extra=fields)
        else:
            log.info("callback.not_delivered", extra=fields)

    def _wait_seconds(self, attempts: int) -> float:
        """Longer each time, and with a random part, so that a receiver that recovers is not overloaded."""
        seconds = self._first_wait_seconds * WAIT_GROWTH ** (attempts - 1)
        return min(seconds, LONGEST_WAIT_SECONDS) * random.uniform(0.75, 1.25)  # noqa: S311 - nothing secret


def _load_ended_run(tx: Transaction, run_id: str) -> EndedRun | None:
    run = tx.runs.find(run_id)
    if run is None:
        return None
    last = tx.events.list_after(run.id, run.last_event_seq - 1, 1)
    if not last or not isinstance(last[0].fact, RunEnded):
        raise Bug(f"The run {run.id} has a callback and no end.")
    return EndedRun(run, tuple(_load_rows(tx, run)), last[0].fact)


def _load_rows(tx: Transaction, run: Run) -> list[Message]:
    rows: list[Message] = []
    page = Page(limit=_PAGE_ROWS, order=Order.ASC)
    while found := tx.messages.list(run.organization_id, page, run_id=run.id):
        rows += found
        if len(found) < page.limit:
            break
        page = replace(page, after=found[-1].id)
    return rows
