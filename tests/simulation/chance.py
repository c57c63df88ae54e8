"""The randomness of a scenario: everything that the code under test does not decide is decided here."""

import asyncio
from random import Random


class InjectedError(RuntimeError):
    """An error that the scenario raises on purpose. Any other error is a finding."""


class Chance:
    """The randomness of a scenario. Once it is calm, no more faults are injected."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_calm = False
        # Whether the store writes one after the other or as it comes: see SteppedStore.
        self.in_order = self.random.random() < 0.5
        # A store that is out of reach now and then: few scenarios have one.
        self._has_flaky_store = self.random.random() < 0.15
        # A server whose own code fails for some runs.
        self.breaks_runs = self.random.random() < 0.2
        # A model that mostly wants what a person must allow, and time for persons to do so.
        self.prefers_held_tools = self.random.random() < (0.8 if self.breaks_runs else 0.4)
        self.outages = 0
        self._calls = 0
        # By run: whether its checkpoints break, and from which on.
        self._break_points: dict[str, str] = {}

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def store_fails(self) -> bool:
        fails = self._has_flaky_store and self.happens(0.03)
        self.outages += fails
        return fails

    def break_point(self, run_id: str, probability: float) -> str:
        """Which checkpoints of the run always fail, if any: "claim", or "advance" for all later ones."""
        if run_id not in self._break_points:
            happens = self.breaks_runs and self.happens(probability)
            kind = self.random.choice(["claim", "advance"]) if happens else ""
            self._break_points[run_id] = kind
        return "" if self.is_calm else self._break_points[run_id]

    def call_id(self) -> str:
        self._calls += 1
        return f"c{self._calls}"

    async def pause(self) -> None:
        """Yield to the loop a few times, or sleep for a short or a longer time."""
        kind = self.random.random()
        if kind < 0.75:
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
        elif kind < 0.97:
            await asyncio.sleep(self.random.uniform(0.001, 0.08))
        else:
            await asyncio.sleep(self.random.uniform(0.1, 0.5))
