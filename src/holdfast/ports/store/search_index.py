"""The upkeep of the index of words. Texts are indexed when they are stored; this is for those that were stored by a version
without the index, and for what deleted texts leave behind."""

from typing import Protocol

from holdfast.core.index_check import IndexCheck


class SearchIndex(Protocol):
    def has_deleted(self) -> bool:
        """Whether texts are deleted whose words are still in the index. A search does not find them."""
        ...

    def remove_deleted(self, limit: int) -> int:
        """Remove the words of up to so many deleted texts, fewer if they are long; return of how many."""
        ...

    def load_check(self) -> IndexCheck:
        """Return which messages are known to be in the index."""
        ...

    def lock_check(self) -> IndexCheck:
        """The same; until the end of the transaction no other can change it."""
        ...

    def save_check(self, check: IndexCheck) -> None: ...

    def last_message(self) -> int:
        """Return the position of the newest message; 0 if there is none."""
        ...

    def index_missing_messages(
        self, *, bottom: int, below: int, limit: int
    ) -> tuple[int, int | None]:
        """Look at up to so many messages between the two positions, the newest first and fewer if they are long, and index
        those that are not. Return how many these were, and the position of the last one that was looked at; None if that
        was the last between the two."""
        ...
