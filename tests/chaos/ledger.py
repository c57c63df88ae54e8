"""What the clients of a chaos were promised and have seen. Nothing here asks a server."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

_KEPT_PROBLEMS: Final = 50


@dataclass(slots=True)
class Sent:
    """A message and its key. It is acknowledged once a server has said that it is stored."""

    key: str
    text: str | None
    is_acknowledged: bool = False
    # By number: what a stream has shown.
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Ledger:
    sent: list[Sent] = field(default_factory=list)
    # The runs whose cancel a server has confirmed.
    cancelled_runs: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, text: str) -> None:
        self.counts["problems"] += 1
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append(text)
