"""Search by vectors, exact: the cosine of the query with every vector. With a cache on SQLite; without one, the vectors are
read in blocks and never all at once. With pgvector PostgreSQL does it (``pgvector``)."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, Select

from holdfast.adapters.store.vector_cache import BLOCK_ROWS, VectorCache
from holdfast.adapters.store.vector_tables import VectorTables
from holdfast.core.embeddings import QueryVector

if TYPE_CHECKING:
    from holdfast.adapters.store.vector_math import Block

# So many of the nearest rows are looked up first, and at least so many for each that is wanted: if a filter leaves too few
# of them, all rows that pass it are looked up.
_FIRST_CANDIDATES: Final = 200
_CANDIDATES_PER_RESULT: Final = 4
# Bytes of vectors that are read at once, if there is no cache.
_SCAN_BYTES: Final = 8 * 1024 * 1024

# A cosine, and the position of a text.
Neighbour = tuple[float, int]


class VectorSearch(Protocol):
    def find(
        self, selected: Select[Any], query: QueryVector, containers: Sequence[str], limit: int
    ) -> Sequence[int]:
        """Return the positions of the texts in these containers whose vectors are nearest, among those that are selected.
        ``selected`` selects the position of the table of texts alone, with all conditions."""
        ...


class ExactSearch:
    """``cache``: None in a transaction that writes."""

    def __init__(
        self, connection: Connection, kind: VectorTables, cache: VectorCache | None = None
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._cache = cache

    def find(
        self, selected: Select[Any], query: QueryVector, containers: Sequence[str], limit: int
    ) -> Sequence[int]:
        found: list[Neighbour] = []
        # One after the other: all together may be more than fits into memory.
        for container in containers:
            blocks = None if self._cache is None else self._load(self._cache, container, query)
            near = (
                self._scan(selected, query, container, limit)
                if blocks is None
                else self._find_in(blocks, selected, query, container, limit)
            )
            found = heapq.nlargest(limit, [*found, *near])
        return [position for _, position in found]

    def _load(
        self, cache: VectorCache, container: str, query: QueryVector
    ) -> "Sequence[Block] | None":
        dimensions = query.vector.dimensions
        which = {"container": container, "by": query.model, "length": dimensions}

        def read_rows(after: int) -> "Block | None":
            values = which | {"after": after, "most": BLOCK_ROWS}
            return _to_block(
                list(self._kind.vector_statements.read.fetch_all(self._connection, values)),
                dimensions,
            )

        def count_rows() -> int:
            (row,) = self._kind.vector_statements.count.fetch_all(self._connection, which)
            return int(row[0])

        key = (self._kind.vectors.name, container, query.model, dimensions)
        return cache.load(key, read_rows, count_rows)

    def _find_in(
        self,
        blocks: "Sequence[Block]",
        selected: Select[Any],
        query: QueryVector,
        container: str,
        limit: int,
    ) -> Sequence[Neighbour]:
        """The nearest rows in memory that are in the table and match."""
        from holdfast.adapters.store.vector_math import rank, to_unit  # noqa: PLC0415 - imports numpy

        direction = to_unit(query.vector.data)
        most = max(_FIRST_CANDIDATES, limit * _CANDIDATES_PER_RESULT)
        near = rank(blocks, direction, most)
        number = self._kind.vectors.c.number
        matching = self._look_up(selected, number.in_([row for _, row in near]))
        if sum(row in matching for _, row in near) < limit and len(near) == most:
            matching = self._look_up(selected, *self._is_of(container, query))
            near = rank(blocks, direction, limit, among=list(matching))
        found = ((cosine, matching[row]) for cosine, row in near if row in matching)
        return list(islice(found, limit))

    def _look_up(self, selected: Select[Any], *conditions: ColumnElement[bool]) -> dict[int, int]:
        """The numbers of the matching rows, with the positions of their texts."""
        rows = self._connection.execute(
            self._join(selected).add_columns(self._kind.vectors.c.number).where(*conditions)
        )
        return {number: position for position, number in rows}

    def _scan(
        self, selected: Select[Any], query: QueryVector, container: str, limit: int
    ) -> Sequence[Neighbour]:
        """The nearest rows, read in blocks."""
        from holdfast.adapters.store.vector_math import rank, to_block, to_unit  # noqa: PLC0415 - imports numpy

        direction = to_unit(query.vector.data)
        found: list[Neighbour] = []
        for rows in self._read_blocks(selected, query, container):
            block = to_block(rows, query.vector.dimensions)
            found = heapq.nlargest(limit, [*found, *rank([block], direction, limit)])
        return found

    def _read_blocks(
        self, selected: Select[Any], query: QueryVector, container: str
    ) -> Iterator[Sequence[tuple[int, bytes]]]:
        size = max(1, min(BLOCK_ROWS, _SCAN_BYTES // len(query.vector.data)))
        statement = (
            self._join(selected)
            .add_columns(self._kind.vectors.c.vector)
            .where(*self._is_of(container, query))
            .execution_options(yield_per=size)
        )
        with self._connection.execute(statement) as rows:
            for part in rows.partitions():
                yield [(row[0], row[1]) for row in part]

    def _join(self, selected: Select[Any]) -> Select[Any]:
        (position,) = selected.exported_columns
        return selected.join(self._kind.vectors, self._kind.vectors.c.position == position)

    def _is_of(self, container: str, query: QueryVector) -> tuple[ColumnElement[bool], ...]:
        c = self._kind.vectors.c
        return (
            c.container_id == container,
            c.model == query.model,
            c.dimensions == query.vector.dimensions,
        )


def _to_block(rows: Sequence[Sequence[Any]], dimensions: int) -> "Block | None":
    from holdfast.adapters.store.vector_math import to_block  # noqa: PLC0415 - imports numpy

    return to_block([(row[0], row[1]) for row in rows], dimensions) if rows else None
