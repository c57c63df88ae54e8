"""A moment: an event that is set once, and that both coroutines and threads can wait for.

The provider runs in the test's own loop or in another thread, so neither `asyncio.Event` nor
`threading.Event` alone is enough. `wait` is awaited, `block` blocks the calling thread.
"""

import asyncio
import threading
from collections.abc import Callable

DEFAULT_TIMEOUT_SECONDS = 30.0

# One lock for all moments: it is held for a few instructions only, and requests create many moments.
_lock = threading.Lock()


class Moment:
    """`happen` sets it, for good."""

    __slots__ = ("_callbacks", "_happened", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._happened = False
        self._callbacks: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Moment {self._name!r}: {'happened' if self._happened else 'not yet'}>"

    @property
    def happened(self) -> bool:
        return self._happened

    def happen(self) -> None:
        with _lock:
            self._happened = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    async def wait(self, timeout: float | None = DEFAULT_TIMEOUT_SECONDS) -> None:  # noqa: ASYNC109 - part of the interface, as in `block`
        """Wait for the moment; raise TimeoutError if it does not happen in time."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            # A closed loop accepts no callbacks.
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        if self._add_callback(wake):
            return
        try:
            await asyncio.wait_for(woken.wait(), timeout)
        except TimeoutError:
            raise self._timeout_error(timeout) from None
        finally:
            self._remove_callback(wake)

    def block(self, timeout: float | None = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Block this thread until the moment; raise TimeoutError if it does not happen in time."""
        woken = threading.Event()
        if self._add_callback(woken.set):
            return
        try:
            if not woken.wait(timeout):
                raise self._timeout_error(timeout)
        finally:
            self._remove_callback(woken.set)

    def _add_callback(self, wake: Callable[[], None]) -> bool:
        with _lock:
            if not self._happened:
                self._callbacks.append(wake)
            return self._happened

    def _remove_callback(self, wake: Callable[[], None]) -> None:
        with _lock:
            if wake in self._callbacks:
                self._callbacks.remove(wake)

    def _timeout_error(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self._name} did not happen within {timeout} s")
