"""Tells whoever asked for it that a run has ended: from the store's outbox, at least once, with patience.

The row is written with the run's end (``Runs.change``), so no end goes untold, whatever dies in between. What is told
is made when it is sent, from what is stored. A receiver that hangs holds one of its own few places, and no run.
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

# How long one try may take (wire-v1 §5.6).
TIMEOUT_SECONDS = 5.0
# What a receiver answers is not kept; more than this is not even read.
MAX_REPLY_BYTES = 64 * 1024
# A claim of a process that died is free again after this long.
CLAIM_SECONDS = 15.0
MAX_CONCURRENT = 32
MAX_CONCURRENT_PER_HOST = 2
# The wait before the second try; each further wait is so many times as long, up to the longest.
FIRST_WAIT_SECONDS = 1.0
WAIT_GROWTH = 4.0
LONGEST_WAIT_SECONDS = 3_600.0
# What another process of the deployment has put into the outbox rings no bell here: it is seen after this long.
POLL_SECONDS = 5.0
STORE_RETRY_SECONDS = 2.0

_PAGE_ROWS = 1_000
_INTERNAL_ERROR = "The server could not deliver it."

# The body that the run, the rows that it stored and its last event make.
Render = Callable[[Run, Sequence[Message], RunEnded], bytes]


class EndedRun(Struct, frozen=True):
    """What there is to tell."""

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
        """Deliver until cancelled. What is under way then is given back, for the next start."""
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
        """Begin what is due, as far as there is room; how long to wait before looking again."""
        now = self._services.clock.now()
        room = MAX_CONCURRENT - len(self._in_flight)
        under_way = Counter(claimed.host for claimed in self._in_flight.values())

        def look(tx: Transaction) -> tuple[Sequence[DueCallback], datetime | None]:
            due = tx.callbacks.list_due(
                now, limit=room, per_host=MAX_CONCURRENT_PER_HOST, in_flight=under_way
            )
            return due, tx.callbacks.next_due_at(now)

        due, following = await self._services.store.read(look)
        if due:
            await self._start(group, due, now + timedelta(seconds=CLAIM_SECONDS))
        if following is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, (following - now).total_seconds())

    async def _start(
        self, group: asyncio.TaskGroup, due: Sequence[DueCallback], until: datetime
    ) -> None:
        for claimed in await self._services.store.write(lambda tx: tx.callbacks.claim(due, until)):
            task = group.create_task(self._deliver(claimed), name=f"callback {claimed.run_id}")
            self._in_flight[task] = claimed
            task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        # There is room again.
        self._services.bell.ring(CALLBACKS)

    async def _deliver(self, claimed: ClaimedCallback) -> None:
        """One try, whatever comes of it: no receiver and no bug may keep the others from being told."""
        logs.bind(run_id=claimed.run_id)
        try:
            outcome, may_try_again = await self._attempt(claimed)
            await self._save_outcome(claimed, outcome, may_try_again=may_try_again)
        except asyncio.CancelledError:
            now = self._services.clock.now()
            with suppress(BackendError):
                await self._services.store.write(lambda tx: tx.callbacks.release(claimed, now))
            raise
        except BackendError:
            # The claim ends by itself.
            log.exception("store.unreachable", extra={"while": "telling of a run's end"})

    async def _attempt(self, claimed: ClaimedCallback) -> tuple[CallbackOutcome, bool]:
        """What came of it, and whether another try may do better."""
        before = CallbackOutcome()
        try:
            told = await self._services.store.read(lambda tx: _load_ended_run(tx, claimed.run_id))
            if told is None:
                return CallbackOutcome(error="The run is gone."), False
            logs.bind(agent_id=told.run.agent_id, organization_id=told.run.organization_id)
            before = told.run.callback or before
            if claimed.attempts > self._services.limits.callback_attempts:
                # The tries before did not end with an outcome but with the process.
                return replace(before, error=_INTERNAL_ERROR), False
            outcome = await self._send(told)
        except BackendError:
            raise
        except Undeliverable as error:
            return replace(before, error=str(error)), True
        except AddressForbidden as error:
            return replace(before, error=str(error)), False
        except Exception:
            # A run that cannot be read is no reason to leave the others untold either.
            log.exception("callback.failed")
            return replace(before, error=_INTERNAL_ERROR), True
        return outcome, outcome.error is not None

    async def _send(self, told: EndedRun) -> CallbackOutcome:
        now = self._services.clock.now()
        body = self._render(told.run, told.rows, told.ended)
        letter = OutgoingRequest(
            url=told.run.request.callback_url or "",
            method="POST",
            headers=callbacks.build_headers(told.run.id, body, now, self._secret),
            body=body,
            timeout_seconds=self._timeout_seconds,
            max_response_bytes=MAX_REPLY_BYTES,
        )
        reply = await self._services.outgoing.send(letter)
        taken = 200 <= reply.status < 300
        error = None if taken else f"The receiver answered with the status {reply.status}."
        return CallbackOutcome(sent_at=now, status_code=reply.status, error=error)

    async def _save_outcome(
        self, claimed: ClaimedCallback, outcome: CallbackOutcome, *, may_try_again: bool
    ) -> None:
        due_at = None
        if may_try_again and claimed.attempts < self._services.limits.callback_attempts:
            wait = timedelta(seconds=self._wait_seconds(claimed.attempts))
            due_at = self._services.clock.now() + wait
        await self._services.store.write(
            lambda tx: tx.callbacks.record_outcome(claimed, outcome, due_at)
        )
        told = {"attempt": claimed.attempts, "why": outcome.error, "next_at": due_at}
        if outcome.error is None:
            log.info("callback.delivered", extra=told)
        else:
            log.info("callback.not_delivered", extra=told)

    def _wait_seconds(self, attempts: int) -> float:
        """Longer each time; and not for all alike, so that a receiver that comes back is not run over."""
        seconds = self._first_wait_seconds * WAIT_GROWTH ** (attempts - 1)
        return min(seconds, LONGEST_WAIT_SECONDS) * random.uniform(0.75, 1.25)  # noqa: S311 - nothing secret


def _load_ended_run(tx: Transaction, run_id: str) -> EndedRun | None:
    run = tx.runs.find(run_id)
    if run is None:
        return None
    last = tx.events.list_after(run.id, run.last_event_seq - 1, 1)
    if not last or not isinstance(last[0].fact, RunEnded):
        raise Bug(f"The run {run.id} is to be told and has no end.")
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
