"""A dispatch inside one process: a first-in, first-out queue per thread."""

import asyncio
from collections import deque

from holdfast.ports.bell import Bell
from holdfast.ports.dispatch import Ticket

TOPIC = "runs"


class InProcessDispatch:
    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._ready: deque[Ticket] = deque()
        self._holders: dict[str, Ticket] = {}
        self._queues: dict[str, deque[Ticket]] = {}
        self._turn_events: dict[str, asyncio.Event] = {}

    def submit(self, ticket: Ticket) -> None:
        holder = self._holders.get(ticket.thread_id)
        if ticket == holder or ticket.run_id in self._turn_events:
            return
        if holder is not None:
            self._queues.setdefault(ticket.thread_id, deque()).append(ticket)
            self._turn_events[ticket.run_id] = asyncio.Event()
        else:
            self._give_turn(ticket)

    async def take(self) -> Ticket:
        while not self._ready:
            await self._bell.wait(TOPIC)
        return self._ready.popleft()

    def release(self, ticket: Ticket) -> None:
        if self._holders.get(ticket.thread_id) != ticket:
            return
        del self._holders[ticket.thread_id]
        queue = self._queues.get(ticket.thread_id)
        if not queue:
            return
        self._give_turn(queue.popleft())
        if not queue:
            del self._queues[ticket.thread_id]

    def count_waiting(self) -> int:
        return len(self._turn_events) + len(self._ready)

    def run_holds_thread(self, run_id: str) -> bool:
        return any(ticket.run_id == run_id for ticket in self._holders.values())

    async def wait_for_turn(self, run_id: str) -> None:
        turn = self._turn_events.get(run_id)
        if turn is not None:
            await turn.wait()

    def withdraw(self, run_id: str) -> str | None:
        for thread_id, queue in self._queues.items():
            for ticket in queue:
                if ticket.run_id == run_id:
                    queue.remove(ticket)
                    # Ends ``wait_for_turn`` for this run.
                    self._turn_events.pop(run_id).set()
                    return self._holders[thread_id].run_id
        return None

    def _give_turn(self, ticket: Ticket) -> None:
        if (turn := self._turn_events.pop(ticket.run_id, None)) is not None:
            turn.set()
        self._holders[ticket.thread_id] = ticket
        self._ready.append(ticket)
        self._bell.ring(TOPIC)
