"""The bells of several servers, and the way of a ring from one to the others: late, or never."""

import asyncio
from collections.abc import Callable
from functools import partial

from tests.simulation.chance import Chance
from tests.simulation.hosts import Host

from holdfast.adapters.bell.local import LocalBell


class Bus:
    """``loss``: which part of all rings arrives nowhere."""

    def __init__(self, chance: Chance, loss: float) -> None:
        self._chance = chance
        self._loss = loss
        self._bells: list[BusBell] = []

    def join(self, bell: "BusBell") -> None:
        self._bells.append(bell)

    def send(self, sender: "BusBell", topic: str) -> None:
        for bell in self._bells:
            if bell is sender or bell.host.is_dead or not bell.is_connected:
                continue
            # Also when the scenario is calm: a ring promises nothing.
            if self._chance.random.random() < self._loss:
                continue
            delay = self._chance.random.choice([0.0, 0.002, 0.05, 1.0])
            ring = partial(bell.ring, topic, here_only=True)
            asyncio.get_running_loop().call_later(delay, ring, context=bell.host.context.copy())


class BusBell(LocalBell):
    def __init__(self, bus: Bus, host: Host, has_peers: Callable[[], bool]) -> None:
        super().__init__()
        self.host = host
        self._bus = bus
        self._has_peers = has_peers
        # Whether its listening connection is known to be dead.
        self.is_deaf = False
        bus.join(self)

    @property
    def is_connected(self) -> bool:
        return not self.is_deaf and not self.host.is_cut_off

    def ring(self, topic: str, *, here_only: bool = False) -> None:
        if self.host.is_dead:
            return
        super().ring(topic)
        if not here_only and self._has_peers() and not self.host.is_cut_off:
            self._bus.send(self, topic)

    def ring_everything(self) -> None:
        """The listening connection is there again: rings may have been missed."""
        for topic in (*self._events, *self._watches):
            super().ring(topic)
