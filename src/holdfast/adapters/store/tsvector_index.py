"""The index of words on PostgreSQL: a ``tsvector`` that is made here, so that no dictionary and no locale of the database
changes what is found. Ranked by how often and how rarely the terms occur, as BM25 does."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import TSQUERY, TSVECTOR
from sqlalchemy.sql import ColumnElement

from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.word_index import NEWEST_ROWS, IndexEntry, choose_terms, scope_term
from holdfast.core.search import QueryTerm, index_terms

# PostgreSQL refuses a tsvector of more than 1 MiB, counts positions up to 16,383 and keeps 256 for each term.
_MAX_BYTES: Final = 900_000
_MAX_POSITION: Final = 16_383
_MAX_POSITIONS: Final = 255
# Beside each term.
_ENTRY_BYTES: Final = 8
_POSITION_BYTES: Final = 2
# Marks the scopes among the terms, which have letters and digits only.
_SCOPE_MARK: Final = "@"
# Divide by the logarithm of the length.
_BY_LENGTH: Final = 1

_statistics = text(
    "SELECT c.reltuples AS rows, s.most_common_elems::text::text[] AS terms, s.most_common_elem_freqs AS frequencies "
    "FROM pg_class c LEFT JOIN pg_stats s ON s.tablename = c.relname AND s.attname = 'terms' "
    "AND s.schemaname = current_schema() WHERE c.oid = to_regclass(:name)"
)


class TsvectorIndex:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._index = table(name, column("position"), column("terms", TSVECTOR))

    def add(self, entries: Sequence[IndexEntry]) -> None:
        rows = [
            {
                "position": entry.position,
                "terms": _write_vector(map(scope_term, entry.scopes), index_terms(entry.text)),
            }
            for entry in entries
        ]
        _insert(self._name).execute_many(self._connection, rows)

    def find(
        self,
        selected: Select[Any],
        terms: Sequence[QueryTerm],
        *,
        scopes: Sequence[str] | None,
        limit: int,
    ) -> Sequence[int]:
        index = self._index
        (position,) = selected.exported_columns
        statistics = self._read_statistics()
        frequencies = [(term, statistics.count_rows(term.text)) for term in terms]
        chosen = choose_terms(frequencies)
        query = selected.join(index, index.c.position == position).where(
            index.c.terms.op("@@")(_parse(_write_query(chosen or terms, scopes)))
        )
        if chosen:
            weights = {term: statistics.weigh(rows) for term, rows in frequencies}
            rank = _add_up(
                literal(weights[term])
                * func.ts_rank(index.c.terms, _parse(_quote(term)), _BY_LENGTH)
                for term in chosen
            )
            query = query.order_by(rank.desc(), position.desc()).limit(limit)
        else:
            query = query.order_by(position.desc()).limit(min(limit, NEWEST_ROWS))
        return self._connection.execute(query).scalars().all()

    def remove_deleted(self, limit: int) -> int:  # noqa: ARG002 - they are deleted with their text
        return 0

    def _read_statistics(self) -> "_Statistics":
        rows, terms, frequencies = self._connection.execute(_statistics, {"name": self._name}).one()
        return _Statistics(
            max(float(rows), 1.0), dict(zip(terms or (), frequencies or (), strict=False))
        )


class _Statistics:
    """What the planner of PostgreSQL knows about the index: how many rows it has, and which terms are frequent."""

    def __init__(self, rows: float, frequencies: Mapping[str, float]) -> None:
        self._rows = rows
        self._frequencies = frequencies

    def count_rows(self, term: str) -> int:
        """About how many rows have the term. One that is not among the frequent ones is rare."""
        return int(self._frequencies.get(term, 0.0) * self._rows)

    def weigh(self, rows: int) -> float:
        """The inverse document frequency of a term, as BM25 counts it."""
        rows = min(rows, int(self._rows))
        return math.log(1 + (self._rows - rows + 0.5) / (rows + 0.5))


_INSERTS: Final[dict[str, PreparedStatement]] = {}


def _insert(name: str) -> PreparedStatement:
    if name not in _INSERTS:
        index = table(name, column("position"), column("terms", TSVECTOR))
        values = {"position": bindparam("position"), "terms": cast(bindparam("terms"), TSVECTOR)}
        _INSERTS[name] = PreparedStatement(insert(index).values(values))
    return _INSERTS[name]


def _write_vector(scopes: Iterable[str], terms: Iterable[str]) -> str:
    """The tsvector as text. What does not fit is left out."""
    positions: dict[str, list[int]] = {}
    used = 0
    for number, term in enumerate(terms, 1):
        found = positions.get(term)
        if found is None:
            used += len(term.encode()) + _ENTRY_BYTES
            if used > _MAX_BYTES:
                break
            found = positions[term] = []
        if len(found) < _MAX_POSITIONS and number <= _MAX_POSITION:
            used += _POSITION_BYTES
            found.append(number)
    entries = [f"'{_SCOPE_MARK}{scope}'" for scope in scopes]
    entries += [
        f"'{term}':{','.join(map(str, at))}" if at else f"'{term}'"
        for term, at in positions.items()
    ]
    return " ".join(entries)


def _write_query(terms: Sequence[QueryTerm], scopes: Sequence[str] | None) -> str:
    words = " | ".join(map(_quote, terms))
    if scopes is None:
        return words
    allowed = " | ".join(f"'{_SCOPE_MARK}{scope_term(scope)}'" for scope in scopes)
    return f"({allowed}) & ({words})"


def _quote(term: QueryTerm) -> str:
    return f"'{term.text}'{':*' if term.is_prefix else ''}"


def _parse(query: str) -> ColumnElement[Any]:
    return cast(literal(query), TSQUERY)


def _add_up(parts: Iterable[ColumnElement[float]]) -> ColumnElement[float]:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
