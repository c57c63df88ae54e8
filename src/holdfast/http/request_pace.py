"""How many requests begin in one turn of the event loop. Thousands that come at once begin one after the other, and
probes need not wait for them."""

import asyncio
from collections import deque
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

# Each takes about a millisecond before it waits for something.
REQUESTS_PER_TURN: Final = 2


class RequestPace:
    def __init__(self, app: ASGIApp, open_paths: frozenset[str]) -> None:
        self._app = app
        self._open_paths = open_paths
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._has_next_turn = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].removesuffix("/") not in self._open_paths:
            await self._wait_for_turn()
        await self._app(scope, receive, send)

    async def _wait_for_turn(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._has_next_turn:
            self._has_next_turn = True
            loop.call_soon(self._begin_next)
        if self._begun < REQUESTS_PER_TURN and not self._waiting:
            self._begun += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin_next(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < REQUESTS_PER_TURN:
            turn = self._waiting.popleft()
            # A client that has gone does not wait any more.
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        self._has_next_turn = bool(self._waiting)
        if self._has_next_turn:
            asyncio.get_running_loop().call_soon(self._begin_next)
