"""The chance of a scenario: all that is not decided by the code under test is decided here."""

import asyncio
from random import Random


class Injected(RuntimeError):
    """A mistake that the scenario makes on purpose. Any other one is a finding."""


class Nature:
    """The chance of a scenario. Once it is calm, nothing goes wrong any more."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.calm = False
        # Whether the store writes one after the other or as it comes: see SteppedStore.
        self.in_order = self.chance.random() < 0.5
        # A store that is out of reach now and then: few scenarios have one.
        self._shaky_store = self.chance.random() < 0.15
        # A house whose own code breaks on some runs.
        self.breaks = self.chance.random() < 0.2
        # A model that mostly wants what a person must allow, and time for persons to do so.
        self.asks_persons = self.chance.random() < (0.8 if self.breaks else 0.4)
        self.outages = 0
        self._calls = 0
        # By run: whether its checkpoints break, and from which on.
        self._curses: dict[str, str] = {}

    def happens(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    def store_fails(self) -> bool:
        fails = self._shaky_store and self.happens(0.03)
        self.outages += fails
        return fails

    def curse(self, run_id: str, probability: float) -> str:
        """Which checkpoints of the run always break, if any: "claim", or "advance" for all that come after."""
        if run_id not in self._curses:
            happens = self.breaks and self.happens(probability)
            kind = self.chance.choice(["claim", "advance"]) if happens else ""
            self._curses[run_id] = kind
        return "" if self.calm else self._curses[run_id]

    def call_id(self) -> str:
        self._calls += 1
        return f"c{self._calls}"

    async def dawdle(self) -> None:
        """A few turns of the loop, a moment, or a while."""
        kind = self.chance.random()
        if kind < 0.75:
            for _ in range(self.chance.randrange(4)):
                await asyncio.sleep(0)
        elif kind < 0.97:
            await asyncio.sleep(self.chance.uniform(0.001, 0.08))
        else:
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))
