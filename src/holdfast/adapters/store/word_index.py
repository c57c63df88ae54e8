"""The index of words as repositories use it. How it is stored is in ``fts5_index`` and ``tsvector_index``."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from sqlalchemy import Connection, Select

from holdfast.core.search import QueryTerm

# So many rows are ranked at most: words that more rows have are left to the rarer ones, and count only if there are no
# rarer ones. To rank takes some microseconds a row, and such words say little.
MAX_RANKED_ROWS: Final = 4_000
# If all words are frequent, so many of the newest rows that have them are taken.
NEWEST_ROWS: Final = 500


class IndexEntry(Struct, frozen=True):
    """A text to index. ``scopes``: what it belongs to, such as its archive; a search may be limited to some of them."""

    position: int
    scopes: tuple[str, ...]
    text: str


class WordIndex(Protocol):
    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Index these texts. A long text is indexed in part."""
        ...

    def find(
        self,
        selected: Select[Any],
        terms: Sequence[QueryTerm],
        *,
        scopes: Sequence[str] | None,
        limit: int,
    ) -> Sequence[int]:
        """Return the positions of the best rows among those that are selected and have one of the terms, best first.
        ``selected`` selects the position of the indexed table alone, with all conditions. ``scopes``: only rows of one of
        these; None: of any."""
        ...

    def remove_deleted(self, limit: int) -> int:
        """Remove up to so many rows whose text is gone; return how many they were."""
        ...


class WordIndexes(Protocol):
    """Makes the index of one table for one transaction."""

    def __call__(self, connection: Connection, name: str) -> WordIndex: ...


def scope_term(identity: str) -> str:
    """The id in the form that the index stores: letters and digits only."""
    return identity.replace("-", "").replace("_", "").lower()


def choose_terms(
    frequencies: Sequence[tuple[QueryTerm, int]], most: int = MAX_RANKED_ROWS
) -> Sequence[QueryTerm]:
    """The rarest terms that together occur in at most so many rows; none if each of them is too frequent."""
    chosen: list[QueryTerm] = []
    total = 0
    for term, rows in sorted(frequencies, key=lambda pair: pair[1]):
        total += rows
        if total > most:
            break
        chosen.append(term)
    return chosen
