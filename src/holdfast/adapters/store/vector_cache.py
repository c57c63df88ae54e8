"""Vectors of a SQLite store in memory, at most so many bytes. What was used longest ago is dropped first.

Rows are only added: the number of a row is never used again, and a row that is deleted from the table is not found,
because a search looks its candidates up in the table."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.adapters.store.vector_math import Block

# How many rows are read at once, and the length of a block: 8 MB of vectors with 256 dimensions.
BLOCK_ROWS: Final = 8_192
# After so many searches the rows of a container are counted again, so that deleted ones do not fill the memory.
_SEARCHES_BETWEEN_COUNTS: Final = 64
# So much larger than its rows in the table a container may be.
_TOLERATED_GROWTH: Final = 1.25
_NUMBER_BYTES: Final = 8
_DIMENSION_BYTES: Final = 4

# The kind of text, the container, the model and its dimensions.
Key = tuple[str, str, str, int]
# Reads the rows of a container above a number, in order, at most BLOCK_ROWS of them.
ReadRows = Callable[[int], "Block | None"]
CountRows = Callable[[], int]


class _Container:
    def __init__(self) -> None:
        self.filling = threading.Lock()
        # Replaced as a whole, so that a search which uses it is not disturbed.
        self.blocks: tuple[Block, ...] = ()
        self.searches = 0

    @property
    def rows(self) -> int:
        return sum(map(len, self.blocks))

    @property
    def size_bytes(self) -> int:
        return sum(block.size_bytes for block in self.blocks)


class VectorCache:
    """Safe from any thread. ``load`` reads what is new to it in the caller's transaction, which must not have written: what
    is rolled back must not be seen by others."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._containers: OrderedDict[Key, _Container] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(container.size_bytes for container in self._containers.values())

    def load(
        self, key: Key, read_rows: ReadRows, count_rows: CountRows
    ) -> "Sequence[Block] | None":
        """Return all vectors of the container; None if they do not fit."""
        container = self._find(key)
        with container.filling:
            container.searches += 1
            if not container.blocks or container.searches % _SEARCHES_BETWEEN_COUNTS == 0:
                rows = count_rows()
                if rows * (key[3] * _DIMENSION_BYTES + _NUMBER_BYTES) > self._max_bytes:
                    self._drop(key)
                    return None
                if container.rows > rows * _TOLERATED_GROWTH:
                    container.blocks = ()
            _fill(container, read_rows)
            blocks = container.blocks
        if not blocks:
            self._drop(key)
        self._shrink()
        return blocks

    def _find(self, key: Key) -> _Container:
        with self._lock:
            container = self._containers.setdefault(key, _Container())
            self._containers.move_to_end(key)
            return container

    def _drop(self, key: Key) -> None:
        with self._lock:
            self._containers.pop(key, None)

    def _shrink(self) -> None:
        """Drop what was used longest ago until the rest fits. One that has grown beyond the limit is dropped too: the next
        search finds that it does not fit."""
        with self._lock:
            total = sum(container.size_bytes for container in self._containers.values())
            while total > self._max_bytes:
                _, dropped = self._containers.popitem(last=False)
                total -= dropped.size_bytes


def _fill(container: _Container, read_rows: ReadRows) -> None:
    """Read what is new. The last block is replaced until it is full, so that blocks stay few and none is copied often."""
    blocks = list(container.blocks)
    while (block := read_rows(blocks[-1].last_number if blocks else 0)) is not None:
        if blocks and len(blocks[-1]) + len(block) <= BLOCK_ROWS:
            blocks[-1] = blocks[-1].join(block)
        else:
            blocks.append(block)
        container.blocks = tuple(blocks)
        if len(block) < BLOCK_ROWS:
            break
