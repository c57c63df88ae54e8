"""A session and the jobs that run on it. The jobs end with their own answers, even if no more of them are begun on it."""

import asyncio
import logging
from typing import Any, Final, Protocol

from holdfast.adapters.mcp.failures import (
    Failure,
    Kind,
    RequestFailed,
    explain_lost,
    explain_unavailable,
)
from holdfast.adapters.mcp.jobs import AnyJob
from holdfast.adapters.mcp.session import Session
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.errors import McpCallLost, McpTimedOut

# How long the calls on a lost session may take to notice.
_LOST_SECONDS: Final = 1.0
_CANCEL_SECONDS: Final = 2.0
# All answers of the session come on one stream: so many calls in a row that took too long, without a word meanwhile, and
# its other end is probably gone.
_MAX_SILENT_TIMEOUTS: Final = 2

log = logging.getLogger(__name__)


class Owner(Protocol):
    """What a session tells the owner of its connection."""

    def repeat_job(self, job: AnyJob) -> None:
        """It has to run on a new session."""

    def note_answer(self) -> None:
        """A job got an answer."""

    def note_change(self) -> None:
        """The session was opened or lost, or takes no more jobs."""

    def note_job_end(self) -> None: ...


class HeldSession:
    def __init__(self, endpoint: Endpoint, owner: Owner) -> None:
        self.running: dict[asyncio.Task[None], AnyJob] = {}
        # A job got an answer on it.
        self.was_of_use = False
        # Nobody waits for it any more: another one can be opened.
        self.is_released = asyncio.Event()
        self._endpoint = endpoint
        self._owner = owner
        self._session: Session | None = None
        self._is_outdated = False
        self._changed = asyncio.Event()
        self._silent_timeouts = 0
        self._received = 0

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._session.is_lost

    @property
    def takes_jobs(self) -> bool:
        return self.is_open and not self._is_outdated

    def start(self, session: Session) -> None:
        self._session = session
        self.note_change()

    def outdate(self) -> None:
        """It takes no more jobs. Those that run may well get their answers."""
        if self.takes_jobs:
            self._is_outdated = True
            self._log_loss()
            self.note_change()

    def _log_loss(self) -> None:
        log.info("mcp.connection_lost", extra={"server": self._endpoint.server_name})

    def note_change(self) -> None:
        self._changed.set()
        self._owner.note_change()

    def begin(self, job: AnyJob, session: Session) -> None:
        task = asyncio.create_task(self._run(job, session), name="mcp-call")
        self.running[task] = job
        task.add_done_callback(self._end_task)
        job.begin(task)
        if self._endpoint.transport is not Transport.STREAMABLE_HTTP:
            # There each call has a stream of its own.
            job.future.add_done_callback(self._note_timeout)

    async def drain(self) -> None:
        """Wait until the jobs have ended, while the session can still answer them."""
        while self.running and self.is_open:
            self._changed.clear()
            await self._changed.wait()

    async def settle(self) -> None:
        """Let the jobs end that still run when the session does."""
        if not self.is_open:
            self._log_loss()
            await self._wait_for_jobs(_LOST_SECONDS)
        self.fail_jobs("the connection was closed")
        # They tell the server that they were cancelled.
        await self._wait_for_jobs(_CANCEL_SECONDS)

    async def end(self) -> None:
        """There is no session any more."""
        try:
            await self._wait_for_jobs(_LOST_SECONDS)
        finally:
            self.fail_jobs("the connection was lost")
            self.is_released.set()

    def fail_jobs(self, why: str) -> None:
        for job in list(self.running.values()):
            job.fail(McpCallLost(job.server, why))

    async def _wait_for_jobs(self, seconds: float) -> None:
        if self.running:
            await asyncio.wait(self.running, timeout=seconds)

    async def _run(self, job: AnyJob, session: Session) -> None:
        try:
            await job.run(session)
        except RequestFailed as error:
            self._judge(job, error.failure)
        except Exception as error:
            # A caller waits for this task: whatever the SDK raises is its answer.
            log.exception("mcp.call_failed", extra={"server": job.server})
            job.fail(McpCallLost(job.server, type(error).__name__))
        else:
            self._note_answer()

    def _judge(self, job: AnyJob, failure: Failure) -> None:
        """A job that was not executed runs once more on a new session; one that may have been does so only if it may."""
        was_executed = failure.kind not in {Kind.SESSION, Kind.UNSENT}
        if not was_executed:
            self.outdate()
        elif failure.kind is not Kind.LOST:
            self._note_answer()
        may_repeat = not was_executed or (failure.kind is Kind.LOST and job.is_repeatable)
        if may_repeat and job.repeats == 0 and not job.future.done():
            job.repeats += 1
            self._owner.repeat_job(job)
        elif failure.kind is Kind.LOST and not job.is_repeatable:
            job.fail(explain_lost(self._endpoint, failure))
        else:
            job.fail(explain_unavailable(self._endpoint, failure))

    def _note_answer(self) -> None:
        self.was_of_use = True
        self._owner.note_answer()

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self.running.pop(task)
        self._changed.set()
        self._owner.note_job_end()

    def _note_timeout(self, future: asyncio.Future[Any]) -> None:
        """Before the caller comes with its next job."""
        if self._session is None or not _took_too_long(future):
            return
        has_spoken = self._session.received != self._received
        self._received = self._session.received
        self._silent_timeouts = 1 if has_spoken else self._silent_timeouts + 1
        if self._silent_timeouts >= _MAX_SILENT_TIMEOUTS:
            self.outdate()


def _took_too_long(future: asyncio.Future[Any]) -> bool:
    error = None if future.cancelled() else future.exception()
    return isinstance(error, McpTimedOut) and error.has_begun
