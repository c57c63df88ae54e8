"""The owner of one connection: a task that opens it, keeps it, opens it again after it was lost, and closes it.

Callers give it jobs. Each runs in a task of the owner's, so that no cancel scope of the SDK is ever entered in a task of
theirs, and cancelling one touches no other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final

from mcp.shared.exceptions import MCPError
from msgspec import Struct

from holdfast.adapters.mcp.failures import (
    Failure,
    Failures,
    Kind,
    RequestFailed,
    explain_lost,
    explain_unavailable,
)
from holdfast.adapters.mcp.jobs import AnyJob
from holdfast.adapters.mcp.session import Session, Transports, open_session
from holdfast.core.mcp_servers import Endpoint
from holdfast.errors import McpCallLost, McpError, McpTimedOut, McpUnauthorized, McpUnavailable
from holdfast.ports.clock import Clock

# How long to wait before each further attempt to connect; the last for ever.
_BACKOFF_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# If the two clocks have moved apart by this much, the machine was suspended: connections are dead without a sign of it.
_SUSPENDED_SECONDS: Final = 5.0
# How long the calls on a lost session may take to notice.
_LOST_SECONDS: Final = 1.0
_CANCEL_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class Timing(Struct, frozen=True):
    connect_seconds: float
    idle_seconds: float


class Connection:
    def __init__(
        self,
        endpoint: Endpoint,
        transports: Transports,
        timing: Timing,
        clock: Clock,
        on_free: Callable[["Connection"], None],
    ) -> None:
        """``on_free`` is called whenever there is no call on it any more, and when it is closed."""
        self.endpoint = endpoint
        # The owner has ended, or is about to: nothing may be given to it.
        self.is_over = False
        self.is_retired = False
        self.last_used = 0.0
        self._transports = transports
        self._timing = timing
        self._clock = clock
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[AnyJob] = deque()
        self._running: dict[asyncio.Task[None], AnyJob] = {}
        self._wake = asyncio.Event()
        self._is_ending = False
        self._is_serving = False
        self._is_modern: bool | None = None
        self._failed_attempts = 0
        self._next_attempt_at = 0.0
        self._last_error: McpError | None = None
        self._note_use()
        self._task = asyncio.create_task(self._own(), name=f"mcp-connection {endpoint.server_name}")

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    def submit(self, job: AnyJob) -> None:
        job.future.add_done_callback(lambda _: self._drop(job))
        self._note_use()
        job.wait_for_connection()
        self._waiting.append(job)
        self._wake.set()

    def retire(self) -> None:
        """Close it as soon as the jobs that it has are done."""
        self.is_retired = True
        self._wake.set()

    async def end(self) -> None:
        """Close it now. Takes a bounded time, whatever the server does."""
        self._is_ending = self.is_retired = True
        self._wake.set()
        if not self._is_serving:
            self._fail_waiting(self._unavailable("this server is stopping"))
            self._task.cancel()
        for seconds in (_CLOSE_SECONDS, _CANCEL_SECONDS):
            await asyncio.wait((self._task,), timeout=seconds)
            if self._task.done():
                return
            self._task.cancel()
        log.warning("mcp.close_failed", extra={"server": self.endpoint.server_name})

    async def _own(self) -> None:
        try:
            while await self._wait_for_work():
                await self._hold_session()
        finally:
            self.is_over = True
            self._fail_waiting(self._unavailable("the connection was closed"))
            self._on_free(self)

    async def _wait_for_work(self) -> bool:
        """Whether a session is needed. No, and never again: it was retired, or nobody has used it for a while."""
        while True:
            self._wake.clear()
            if self._is_ending:
                self._fail_waiting(self._unavailable("this server is stopping"))
            if not self._waiting and (self.is_retired or self._idle_seconds_left() <= 0):
                self.is_over = True
                return False
            pause = self._next_attempt_at - self._loop.time()
            if self._waiting and pause <= 0:
                return True
            self._fail_hopeless()
            await self._sleep(pause if self._waiting else self._idle_seconds_left())

    async def _hold_session(self) -> None:
        session: Session | None = None
        try:
            async with AsyncExitStack() as stack:
                session = await self._connect(stack)
                self._failed_attempts, self._last_error = 0, None
                self._is_serving = True
                await self._serve(session)
                await self._settle(session)
        except McpError as error:
            self._fail_attempt(error)
        except Exception:
            # The SDK's transports end with groups of whatever has happened in them.
            log.info(
                "mcp.connection_lost", extra={"server": self.endpoint.server_name}, exc_info=True
            )
        finally:
            self._is_serving = False
            if session is not None:
                session.is_lost = True
        if self._running:
            await asyncio.wait(self._running, timeout=_LOST_SECONDS)
        self._fail_running("the connection was lost")

    async def _connect(self, stack: AsyncExitStack) -> Session:
        failures = Failures()
        seconds = self._timing.connect_seconds
        opened = open_session(
            self._transports,
            self.endpoint,
            failures,
            is_modern=self._is_modern,
            on_lost=self._wake.set,
        )
        try:
            async with asyncio.timeout(seconds):
                session = await stack.enter_async_context(opened)
        except TimeoutError as error:
            raise McpTimedOut(self.endpoint.server_name, "connecting", seconds) from error
        except Exception as error:
            # As above: a group, a refusal of the server, or the operating system's error.
            raise explain_unavailable(self.endpoint, _find_failure(error, failures)) from error
        self._is_modern = session.is_modern
        server = self.endpoint.server_name
        log.info(
            "mcp.connected", extra={"server": server, "protocol": session.client.protocol_version}
        )
        return session

    async def _serve(self, session: Session) -> None:
        """Run jobs until the session is lost or not needed any more."""
        offset = self._read_offset()
        while True:
            self._wake.clear()
            if self._waiting and abs(self._read_offset() - offset) > _SUSPENDED_SECONDS:
                session.mark_lost()
            if session.is_lost or self._is_ending:
                return
            while self._waiting:
                self._begin(self._waiting.popleft(), session)
            if self._running:
                await self._wake.wait()
            elif self.is_retired or self._idle_seconds_left() <= 0:
                return
            else:
                await self._sleep(self._idle_seconds_left())

    async def _settle(self, session: Session) -> None:
        """Let the calls end that still run when the session does."""
        if session.is_lost:
            log.info("mcp.connection_lost", extra={"server": self.endpoint.server_name})
            if self._running:
                await asyncio.wait(self._running, timeout=_LOST_SECONDS)
        tasks = list(self._running)
        self._fail_running("the connection was closed")
        if tasks:
            # They tell the server that they were cancelled.
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    def _begin(self, job: AnyJob, session: Session) -> None:
        task = asyncio.create_task(self._run(job, session), name="mcp-call")
        self._running[task] = job
        task.add_done_callback(self._end_task)
        job.begin(task)

    async def _run(self, job: AnyJob, session: Session) -> None:
        try:
            await job.run(session)
        except RequestFailed as error:
            self._judge(job, session, error.failure)
        except Exception as error:
            # A caller waits for this task: whatever the SDK raises is its answer.
            log.exception("mcp.call_failed", extra={"server": job.server})
            job.fail(McpCallLost(job.server, type(error).__name__))

    def _judge(self, job: AnyJob, session: Session, failure: Failure) -> None:
        """A job that was not executed runs once more on a new session; one that may have been does so only if it may."""
        if failure.kind in {Kind.SESSION, Kind.UNSENT}:
            session.mark_lost()
        may_repeat = failure.kind in {Kind.SESSION, Kind.UNSENT} or (
            failure.kind is Kind.LOST and job.is_repeatable
        )
        if may_repeat and job.repeats == 0 and not job.future.done():
            job.repeats += 1
            job.wait_for_connection()
            self._waiting.append(job)
        elif failure.kind is Kind.LOST and not job.is_repeatable:
            job.fail(explain_lost(self.endpoint, failure))
        else:
            job.fail(explain_unavailable(self.endpoint, failure))

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._note_use()
        self._wake.set()
        if self.is_idle:
            self._on_free(self)

    def _drop(self, job: AnyJob) -> None:
        """The job is done, perhaps before it began."""
        if job in self._waiting:
            self._waiting.remove(job)
            self._wake.set()
            if self.is_idle:
                self._on_free(self)

    def _fail_attempt(self, error: McpError) -> None:
        server = self.endpoint.server_name
        log.warning("mcp.connect_failed", extra={"server": server, "reason": str(error)})
        if isinstance(error, McpUnauthorized):
            # The server is well.
            self._failed_attempts = 0
        else:
            pause = _BACKOFF_SECONDS[min(self._failed_attempts, len(_BACKOFF_SECONDS) - 1)]
            self._failed_attempts += 1
            self._next_attempt_at = self._loop.time() + pause
        self._last_error = error
        self._fail_waiting(error)

    def _fail_hopeless(self) -> None:
        """Those that cannot wait until the next attempt learn at once why the last one failed."""
        for job in list(self._waiting):
            if job.must_connect_at < self._next_attempt_at and self._last_error is not None:
                job.fail(_repeat(self._last_error))

    def _fail_waiting(self, error: McpError) -> None:
        for job in list(self._waiting):
            job.fail(_repeat(error))
        self._waiting.clear()
        if self.is_idle:
            self._on_free(self)

    def _fail_running(self, why: str) -> None:
        for job in list(self._running.values()):
            job.fail(McpCallLost(job.server, why))

    def _unavailable(self, why: str) -> McpUnavailable:
        return McpUnavailable(self.endpoint.server_name, why)

    def _note_use(self) -> None:
        self.last_used = self._loop.time()

    def _idle_seconds_left(self) -> float:
        return self.last_used + self._timing.idle_seconds - self._loop.time()

    def _read_offset(self) -> float:
        """How far the clock on the wall is from the one that stands still while the machine does."""
        return self._clock.now().timestamp() - self._clock.monotonic_ns() / 1e9

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass


def _repeat(error: McpError) -> McpError:
    """The same error for one more caller: an exception that is raised again and again grows."""
    again = type(error).__new__(type(error))
    again.__dict__.update(error.__dict__)
    again.args = error.args
    return again


def _find_failure(error: Exception, failures: Failures) -> Failure:
    for leaf in _walk(error):
        if isinstance(leaf, RequestFailed):
            return leaf.failure
        if isinstance(leaf, MCPError):
            if failures.last is not None and failures.last.why == leaf.message:
                return failures.last
            return Failure(Kind.REFUSED, leaf.message)
    leaf = next(_walk(error))
    return Failure(Kind.UNSENT, str(leaf) or type(leaf).__name__)


def _walk(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _walk(inner)
    else:
        yield error
