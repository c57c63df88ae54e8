"""The processes of a scenario as their operating system sees them: a host has tasks and timers, and can be paused.

Everything that a process does is a callback of the loop in a context with its host. While the host is paused, its callbacks
wait: none of its tasks gets on and none of its timers fires, as after SIGSTOP.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from holdfast.core.servers import Claim

T = TypeVar("T")

# The claim of the run that the current task executes.
CLAIM: ContextVar[Claim | None] = ContextVar("claim", default=None)


class Host:
    def __init__(self, name: str) -> None:
        self.name = name
        # The id under which it is registered in the database.
        self.server_id = ""
        self.is_dead = False
        self.is_paused = False
        # Whether neither the database nor the rings of others can be reached.
        self.is_cut_off = False
        # In the order of their creation.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._frozen: deque[asyncio.Handle] = deque()
        # After how many callbacks it is paused, and for how long.
        self._pause_plan: tuple[int, float] | None = None
        self.context = copy_context()
        self.context.run(HOST.set, self)

    def create_task(self, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        return asyncio.create_task(work, name=name or None, context=self.context.copy())

    def forget_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def pause_after(self, callbacks: int, seconds: float) -> None:
        """Pause after so many more callbacks, for so many seconds."""
        if self._pause_plan is None and not self.is_paused:
            self._pause_plan = (callbacks, seconds)

    def takes_turn(self, handle: asyncio.Handle) -> bool:
        """Whether this callback may run now. If not, it runs when the host is resumed."""
        if self._pause_plan is not None and not self.is_dead:
            callbacks, seconds = self._pause_plan
            self._pause_plan = (callbacks - 1, seconds)
            if callbacks <= 0:
                self._pause(seconds)
        if self.is_paused:
            self._frozen.append(handle)
        return not self.is_paused

    def _pause(self, seconds: float) -> None:
        self._pause_plan = None
        self.is_paused = True
        # Outside the context of the host: this timer must fire.
        asyncio.get_running_loop().call_later(seconds, self.resume, context=Context())

    def resume(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self.is_paused, self._pause_plan = False, None
        while self._frozen:
            loop.run_soon(self._frozen.popleft())


HOST: ContextVar[Host | None] = ContextVar("host", default=None)
