"""How many requests begin in one turn of the event loop. Thousands that come at once begin one after the other, and
probes need not wait for them."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# Each takes about a millisecond before it waits for something.
REQUESTS_PER_TURN: Final = 2


class RequestPace:
    def __init__(self, unpaced_paths: frozenset[str]) -> None:
        self._unpaced_paths = unpaced_paths
        self._begun = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_next_turn = False

    def begin(self, path: str, start: Callable[[], None]) -> None:
        """Call ``start``, now or in a later turn."""
        if path.removesuffix("/") in self._unpaced_paths:
            start()
            return
        if not self._has_next_turn:
            self._has_next_turn = True
            asyncio.get_running_loop().call_soon(self._begin_next)
        if self._begun < REQUESTS_PER_TURN and not self._waiting:
            self._begun += 1
            start()
        else:
            self._waiting.append(start)

    def _begin_next(self) -> None:
        self._begun = min(REQUESTS_PER_TURN, len(self._waiting))
        for _ in range(self._begun):
            self._waiting.popleft()()
        self._has_next_turn = self._begun > 0
        if self._has_next_turn:
            asyncio.get_running_loop().call_soon(self._begin_next)
