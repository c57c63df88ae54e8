"""Which messages are known to be in the index of words. Each server indexes what it stores, but one of a version before the
index does not, and may use the same database: during an upgrade without a stop, or when an operator goes back to it."""

from msgspec import Struct
from msgspec.structs import replace


class IndexPass(Struct, frozen=True, kw_only=True):
    """Going over the messages from ``top`` down to ``bottom``. Those at ``below`` and above are done."""

    top: int
    bottom: int
    below: int
    # Whether no server without the index could store a message in this range any more when it began.
    is_final: bool


class IndexCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``checked_to``: no message up to this position is missing. ``seen_to``: messages up to this one were looked at, but a
    server without the index may have stored more of them since. Positions grow, from 1."""

    checked_to: int = 0
    seen_to: int = 0
    current: IndexPass | None = None

    def begin(self, top: int, *, is_final: bool) -> "IndexCheck":
        """Begin a pass over what is new, or over everything that is not certain if that can be settled now."""
        bottom = self.checked_to if is_final else self.seen_to
        started = IndexPass(top=top, bottom=bottom, below=top + 1, is_final=is_final)
        return replace(self, current=started)

    def advance(self, below: int | None) -> "IndexCheck":
        """Messages at ``below`` and above are done; None: all of the pass."""
        if self.current is None:
            return self
        if below is not None:
            return replace(self, current=replace(self.current, below=below))
        top = self.current.top
        checked_to = top if self.current.is_final else self.checked_to
        return IndexCheck(checked_to=checked_to, seen_to=max(top, self.seen_to))

    def is_due(self, top: int, *, is_final: bool) -> bool:
        """Whether there is something to do when ``top`` is the last message."""
        return self.current is not None or (self.checked_to if is_final else self.seen_to) < top
