"""The owner of one connection: a task that opens sessions for it, one at a time, and closes it when it is idle or retired.

Callers give it jobs. Each runs in a task of a session's, so that no cancel scope of the SDK is ever entered in a task of
theirs, and cancelling one touches no other. A session that takes no more jobs stays open until those that run on it have
ended, while a new one serves the others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final

from mcp.shared.exceptions import MCPError
from msgspec import Struct

from holdfast.adapters.mcp.attempts import Attempts
from holdfast.adapters.mcp.failures import (
    Failure,
    Failures,
    Kind,
    RequestFailed,
    explain_unavailable,
)
from holdfast.adapters.mcp.held_session import HeldSession
from holdfast.adapters.mcp.jobs import AnyJob
from holdfast.adapters.mcp.session import Session, Transports, open_session
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.errors import McpError, McpTimedOut, McpUnavailable

# After a suspension of this length a connection may be dead without a sign of it.
_SUSPENDED_SECONDS: Final = 5.0
_CANCEL_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class Timing(Struct, frozen=True):
    connect_seconds: float
    idle_seconds: float
    # How long this machine was suspended in all.
    read_suspended_seconds: Callable[[], float]


class Connection:
    def __init__(
        self,
        endpoint: Endpoint,
        transports: Transports,
        timing: Timing,
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
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[AnyJob] = deque()
        # The last one may take jobs.
        self._sessions: dict[asyncio.Task[None], HeldSession] = {}
        self._attempts = Attempts()
        self._wake = asyncio.Event()
        self._is_ending = False
        self._is_modern: bool | None = None
        self._note_use()
        self._task = asyncio.create_task(self._own(), name=f"mcp-connection {endpoint.server_name}")

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not any(held.running for held in self._sessions.values())

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
        self._fail_waiting(self._unavailable("this server is stopping"))
        held = None
        for held in self._sessions.values():
            held.fail_jobs("the connection was closed")
        if held is None or not held.is_open:
            # It is being opened, if at all.
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
                await self._start_session().is_released.wait()
            if self._sessions:
                await asyncio.wait(self._sessions)
        finally:
            self.is_over = True
            await self._cancel_sessions()
            self._fail_waiting(self._unavailable("the connection was closed"))
            self._on_free(self)

    async def _wait_for_work(self) -> bool:
        """Whether a session is needed. No, and never again: it was retired, or nobody has used it for a while."""
        while True:
            self._wake.clear()
            if self._is_ending:
                self._fail_waiting(self._unavailable("this server is stopping"))
            if self.is_idle and self._is_unwanted():
                self.is_over = True
                return False
            if self._waiting and self._attempts.seconds_left <= 0:
                return True
            self._fail_hopeless()
            await self._sleep(self._pause())

    def _pause(self) -> float | None:
        """How long there is nothing to do. None: until a call ends."""
        if self._waiting:
            return self._attempts.seconds_left
        left = self._idle_seconds_left()
        return left if left > 0 else None

    def _start_session(self) -> HeldSession:
        held = HeldSession(self.endpoint, self)
        task = asyncio.create_task(self._hold(held), name="mcp-session")
        self._sessions[task] = held
        task.add_done_callback(self._sessions.pop)
        return held

    async def _cancel_sessions(self) -> None:
        for task in self._sessions:
            task.cancel()
        if self._sessions:
            await asyncio.wait(self._sessions)

    async def _hold(self, held: HeldSession) -> None:
        """Open a session, and close it when it is over: all in this task, as the SDK wants it."""
        try:
            async with AsyncExitStack() as stack:
                session = await self._connect(stack, held)
                held.start(session)
                await self._serve(held, session)
                if held.is_open and held.running and not self._is_ending:
                    held.is_released.set()
                    await held.drain()
                await held.settle()
        except McpError as error:
            self._fail_attempt(error)
        except Exception:
            # The SDK's transports end with groups of whatever has happened in them.
            log.info(
                "mcp.connection_lost", extra={"server": self.endpoint.server_name}, exc_info=True
            )
            self._note_loss(held)
        finally:
            await held.end()

    async def _connect(self, stack: AsyncExitStack, held: HeldSession) -> Session:
        failures = Failures()
        seconds = self._timing.connect_seconds
        opened = open_session(
            self._transports,
            self.endpoint,
            failures,
            is_modern=self._is_modern,
            on_lost=held.note_change,
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

    async def _serve(self, held: HeldSession, session: Session) -> None:
        """Begin jobs until the session takes no more, or is not needed any more."""
        suspended_before = self._timing.read_suspended_seconds()
        while True:
            self._wake.clear()
            if self._waiting and self._may_be_dead(suspended_before):
                held.outdate()
            if self._is_ending:
                return
            if not held.takes_jobs:
                self._note_loss(held)
                return
            while self._waiting:
                held.begin(self._waiting.popleft(), session)
            if held.running:
                await self._wake.wait()
            elif self._is_unwanted():
                return
            else:
                await self._sleep(self._idle_seconds_left())

    def _may_be_dead(self, suspended_before: float) -> bool:
        if self.endpoint.transport is Transport.STDIO:
            # A program is suspended with us.
            return False
        return self._timing.read_suspended_seconds() - suspended_before > _SUSPENDED_SECONDS

    # What a session tells its owner

    def repeat_job(self, job: AnyJob) -> None:
        job.wait_for_connection()
        self._waiting.append(job)
        self._wake.set()

    def note_answer(self) -> None:
        self._attempts.reset()

    def note_change(self) -> None:
        self._wake.set()

    def note_job_end(self) -> None:
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
        self._note_failure(error)
        self._fail_waiting(error)

    def _note_loss(self, held: HeldSession) -> None:
        """A session that was of no use is a failed attempt, or it would be opened again without a pause."""
        if not held.was_of_use and not held.is_released.is_set():
            self._note_failure(self._unavailable("the connection was lost"))

    def _note_failure(self, error: McpError) -> None:
        self._attempts.fail(error)
        # Perhaps the server was replaced, and speaks another generation now.
        self._is_modern = None

    def _fail_hopeless(self) -> None:
        """Those that cannot wait until the next attempt learn at once why the last one failed."""
        error = self._attempts.last_error
        for job in list(self._waiting):
            if job.must_connect_at < self._attempts.next_at and error is not None:
                job.fail(_repeat(error))

    def _fail_waiting(self, error: McpError) -> None:
        for job in list(self._waiting):
            job.fail(_repeat(error))
        self._waiting.clear()
        if self.is_idle:
            self._on_free(self)

    def _unavailable(self, why: str) -> McpUnavailable:
        return McpUnavailable(self.endpoint.server_name, why)

    def _note_use(self) -> None:
        self.last_used = self._loop.time()

    def _idle_seconds_left(self) -> float:
        return self.last_used + self._timing.idle_seconds - self._loop.time()

    def _is_unwanted(self) -> bool:
        return self.is_retired or self._idle_seconds_left() <= 0

    async def _sleep(self, seconds: float | None) -> None:
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
