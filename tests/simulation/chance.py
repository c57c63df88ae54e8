"""The randomness of a scenario: everything that the code under test does not decide is decided here."""

import asyncio
from enum import StrEnum
from random import Random

from tests.simulation.hosts import Host

from holdfast.errors import DiskFull, StoreUnavailable

# More than twice a lease.
LONGEST_INTERRUPTION_SECONDS = 10.0


class InjectedError(RuntimeError):
    """An error that the scenario raises on purpose. Any other error is a finding."""


class Outage(StrEnum):
    """What the store cannot do for a while: nothing at all, or writing."""

    UNREACHABLE = "the store is out of reach"
    DISK_FULL = "the disk is full"


class Chance:
    """The randomness of a scenario. Once it is calm, no more faults are injected."""

    def __init__(self, seed: int, *, has_peers: bool = False) -> None:
        self.random = Random(seed)
        self.is_calm = False
        # Several servers on one store: each of them may be paused at any moment.
        self.has_peers = has_peers
        self.has_pauses = has_peers and self.random.random() < 0.7
        # Whether the store writes one after the other or as it comes: see SteppedStore.
        self.in_order = self.random.random() < 0.5 and not has_peers
        # A store that is out of reach for single calls, or for a while, or that loses the answer to a commit: few
        # scenarios have one.
        self._has_flaky_store = self.random.random() < 0.15
        self.has_outages = self.random.random() < 0.2
        self._loses_answers = self.random.random() < (0.3 if has_peers else 0.15)
        self._outage = Outage.UNREACHABLE
        self._outage_ends_at = 0.0
        # A server whose own code fails for some runs.
        self.breaks_runs = self.random.random() < 0.2
        # A model that mostly wants what a person must allow, and time for persons to do so.
        self.prefers_held_tools = self.random.random() < (0.8 if self.breaks_runs else 0.4)
        # A model that mostly wants what runs at once, and time for tools to return.
        often = 0.7 if has_peers else 0.6 if self.has_outages else 0.25
        self.prefers_tools = self.random.random() < often
        # Clients also store passages.
        self.has_memory = self.random.random() < 0.3
        self.outages = 0
        self._calls = 0
        # By run: whether its checkpoints break, and from which on.
        self._break_points: dict[str, str] = {}

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def begin_outage(self) -> str:
        """Let the store fail from now on, for a moment or longer than most waits last."""
        self._outage = self.random.choice(list(Outage))
        seconds = self.random.choice([0.05, 0.5, 3.0, 15.0]) * self.random.uniform(0.5, 2)
        self._outage_ends_at = asyncio.get_running_loop().time() + seconds
        return f"{self._outage} for {seconds:.2f} s"

    def find_fault(self, *, writes: bool) -> StoreUnavailable | None:
        """Why the store cannot do its next work, if so."""
        fault: StoreUnavailable | None = None
        if self._has_flaky_store and self.happens(0.03):
            fault = StoreUnavailable("The store was out of reach.")
        if not self.is_calm and asyncio.get_running_loop().time() < self._outage_ends_at:
            if self._outage is Outage.UNREACHABLE:
                fault = StoreUnavailable("The store is out of reach.")
            elif writes:
                fault = DiskFull("The disk is full.")
        self.outages += fault is not None
        return fault

    def loses_answer(self) -> bool:
        """Whether a commit is reported as failed."""
        loses = self._loses_answers and self.happens(0.08)
        self.outages += loses
        return loses

    def break_point(self, run_id: str, probability: float) -> str:
        """Which checkpoints of the run always fail, if any: "claim", or "advance" for all later ones."""
        if run_id not in self._break_points:
            happens = self.breaks_runs and self.happens(probability)
            kind = self.random.choice(["claim", "advance"]) if happens else ""
            self._break_points[run_id] = kind
        return "" if self.is_calm else self._break_points[run_id]

    def may_pause(self, host: Host | None, probability: float) -> None:
        """Pause a server, here or a few callbacks later: often for longer than its lease."""
        if host is not None and self.has_pauses and self.happens(probability):
            host.pause_after(
                self.random.randrange(self.random.choice([4, 15])), self.interruption_seconds()
            )
            self.outages += 1

    def interruption_seconds(self) -> float:
        """How long a server is paused or cut off: a moment, or longer than its lease."""
        longest = LONGEST_INTERRUPTION_SECONDS
        return (
            self.random.choice([0.02, 0.2, 0.4, 0.5, 0.9]) * longest * self.random.uniform(0.8, 1.1)
        )

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
