"""A call on its way to the owner of a connection.

The caller waits for the future alone: when it is cancelled or its time is over, it goes at once, and the task that works for
it at the connection is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from holdfast.adapters.mcp.session import Session
from holdfast.errors import HoldfastError, McpTimedOut

T = TypeVar("T")


class Job(Generic[T]):
    def __init__(
        self,
        server: str,
        doing: str,
        run: Callable[[Session], Awaitable[T]],
        *,
        seconds: float,
        connect_seconds: float,
        is_repeatable: bool,
    ) -> None:
        """``doing``: for the message if it takes too long. ``is_repeatable``: running it twice has no effect."""
        loop = asyncio.get_running_loop()
        self.server = server
        self.future: asyncio.Future[T] = loop.create_future()
        self.is_repeatable = is_repeatable
        # How often it was given back, to run on a new session.
        self.repeats = 0
        self.must_connect_at = 0.0
        self._loop = loop
        self._doing = doing
        self._run = run
        self._seconds = seconds
        self._connect_seconds = connect_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.future.add_done_callback(self._end)

    def wait_for_connection(self) -> None:
        self._task = None
        self.must_connect_at = self._loop.time() + self._connect_seconds
        error = McpTimedOut(self.server, "connecting", self._connect_seconds)
        self._set_timer(self._connect_seconds, error)

    def begin(self, task: asyncio.Task[None]) -> None:
        """``task`` runs it. Its time begins now."""
        self._task = task
        error = McpTimedOut(self.server, self._doing, self._seconds, has_begun=True)
        self._set_timer(self._seconds, error)

    async def run(self, session: Session) -> None:
        result = await self._run(session)
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: HoldfastError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _set_timer(self, seconds: float, error: HoldfastError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.fail, error)

    def _end(self, future: asyncio.Future[T]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if not future.cancelled():
            # Nobody may be waiting any more.
            future.exception()


AnyJob = Job[Any]
