"""The index of words as repositories use it. How it is stored is in ``fts5_index`` and ``tsvector_index``."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from sqlalchemy import Connection, Select

from holdfast.core.search import QueryTerm

# Of a word that more rows have, only the newest ones are ranked, on PostgreSQL only if rarer words find too few. To rank
# takes some microseconds a row, and such a word says little.
MAX_RANKED_ROWS: Final = 4_000
# Of all words of a query together. Of a long query the rarer words count.
MAX_RANKED_WORDS: Final = 24_000
# Marks the scopes among the terms. No term has it, since it is not a letter.
_SCOPE_MARK: Final = "\ue000"


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
        these; None: of any. It may only make the search faster: ``selected`` has the same condition."""
        ...

    def find_missing(self, positions: Sequence[int]) -> set[int]:
        """Return those of the positions that are not in the index."""
        ...

    def has_deleted(self) -> bool:
        """Whether rows are there whose text is gone."""
        ...

    def remove_deleted(self, limit: int) -> int:
        """Remove up to so many rows whose text is gone, fewer if they are long; return how many they were."""
        ...


class WordIndexes(Protocol):
    """Makes the index of one table for one transaction."""

    def __call__(self, connection: Connection, name: str) -> WordIndex: ...


def scope_term(identity: str) -> str:
    """The id as a term of the index: behind the mark only letters and digits."""
    return _SCOPE_MARK + identity.replace("-", "").replace("_", "").lower()
