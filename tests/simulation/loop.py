"""An event loop without I/O: one seed gives one order of events.

Time stands still while anything can run, and jumps to the next timer when nothing can. The callbacks of a host that is
paused wait.
"""

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from tests.simulation.hosts import HOST

T = TypeVar("T")


class Stuck(Exception):
    """All tasks wait for each other: a deadlock."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_VirtualSelector(self))
        self.set_task_factory(_create_task)  # type: ignore[arg-type] # with any options

    def time(self) -> float:
        return self._now

    def skip(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(  # type: ignore[override] # any work
        self, _executor: object, work: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """At once: what threads do has no order."""
        done = self.create_future()
        try:
            done.set_result(work(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            done.set_exception(error)
        return done

    def run_soon(self, handle: asyncio.Handle) -> None:
        """Run a callback whose time has come, unless it was cancelled."""
        self._ready.append(handle)  # type: ignore[attr-defined] # asyncio's own queue

    def _call_soon(
        self, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> asyncio.Handle:
        handle = _HostHandle(callback, args, self, context)
        self.run_soon(handle)
        return handle

    def call_at(  # type: ignore[override] # any callback
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _HostTimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined] # asyncio's own queue
        timer._scheduled = True  # type: ignore[attr-defined] # as asyncio does
        return timer


def _create_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """A task that its host knows."""
    task = asyncio.Task(work, loop=loop, context=context, **options)
    host = (context or copy_context()).get(HOST)
    if host is not None:
        host.tasks[task] = None
        task.add_done_callback(host.forget_task, context=Context())
    return task


class _HostHandle(asyncio.Handle):
    def _run(self) -> None:
        host = self._context.get(HOST)  # type: ignore[attr-defined] # asyncio's own
        if host is None or host.takes_turn(self):
            super()._run()


class _HostTimerHandle(asyncio.TimerHandle):
    def _run(self) -> None:
        host = self._context.get(HOST)  # type: ignore[attr-defined] # asyncio's own
        if host is None or host.takes_turn(self):
            super()._run()


class _VirtualSelector(selectors.SelectSelector):
    """No file is ever ready. Waiting for one advances the virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("Nothing is left that could happen.")
        self._loop.skip(max(timeout, 0.0))
        return []


def run(main: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
