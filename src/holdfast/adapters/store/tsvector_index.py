"""The index of words on PostgreSQL: a ``tsvector`` that is made here, so that no dictionary and no locale of the database
changes what is found. Ranked by how often and how rarely the terms occur, as BM25 does."""

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
    select,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import TSQUERY, TSVECTOR
from sqlalchemy.sql import ColumnElement

from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.word_index import (
    MAX_RANKED_ROWS,
    MAX_RANKED_WORDS,
    IndexEntry,
    scope_term,
)
from holdfast.core.search import QueryTerm, index_terms

# PostgreSQL refuses a tsvector of more than 1 MiB, counts positions up to 16,383 and keeps 256 for each term.
_MAX_BYTES: Final = 900_000
_MAX_POSITION: Final = 16_383
_MAX_POSITIONS: Final = 255
# Beside each term.
_ENTRY_BYTES: Final = 8
_POSITION_BYTES: Final = 2
# Of a query with more terms, the rarest count.
_MAX_RANKED_TERMS: Final = 16
# Divide by the logarithm of the length.
_BY_LENGTH: Final = 1

# What the planner knows about the index: how many rows it has, and how frequent some terms are. Only the asked ones are
# returned: it knows a thousand.
_statistics = PreparedStatement(
    text(
        "SELECT c.reltuples, (SELECT json_object_agg(known.term, known.share) FROM unnest("
        "s.most_common_elems::text::text[], s.most_common_elem_freqs) AS known (term, share) "
        "WHERE known.term = ANY (:terms)) "
        "FROM pg_class c LEFT JOIN pg_stats s ON s.tablename = c.relname AND s.attname = 'terms' "
        "AND s.schemaname = current_schema() WHERE c.oid = to_regclass(:name)"
    )
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
        if limit <= 0:
            return []
        known = self._read_statistics(terms, scopes)
        in_scope = self._count_scope(scopes, known)
        chosen = _choose_terms([(term, min(known.count(term.text), in_scope)) for term in terms])
        found = []
        if chosen:
            hits = _matches(self._index, _write_query(chosen, scopes))
            counted = {term: known.count(term.text) for term in terms if term not in chosen}
            found = self._rank(selected, hits, chosen, counted, in_scope=in_scope, limit=limit)
        if len(found) < limit and len(chosen) < len(terms):
            found += self._find_newest(selected, terms, scopes, found, limit - len(found))
        return found

    def find_missing(self, positions: Sequence[int]) -> set[int]:
        position = self._index.c.position
        rows = self._connection.execute(select(position).where(position.in_(positions)))
        return set(positions).difference(rows.scalars())

    def has_deleted(self) -> bool:
        return False

    def remove_deleted(self, limit: int) -> int:  # noqa: ARG002 - they are deleted with their text
        return 0

    def _rank(
        self,
        selected: Select[Any],
        hits: ColumnElement[bool],
        chosen: Sequence[QueryTerm],
        frequent: Mapping[QueryTerm, int],
        *,
        in_scope: int,
        limit: int,
    ) -> list[int]:
        """The best of these rows. How rare a chosen term is, is counted among them; of a frequent one it is known."""
        (position,) = selected.exported_columns
        # Not a join: the planner must ask the index of terms first and the table for each row, whatever it thinks of the
        # other conditions.
        allowed = selected.where(position == self._index.c.position).scalar_subquery()
        terms = [*chosen, *frequent][:_MAX_RANKED_TERMS]
        ranks = [
            func.ts_rank(self._index.c.terms, _parse(_quote(term)), _BY_LENGTH).label(f"rank_{n}")
            for n, term in enumerate(terms)
        ]
        row = select(self._index.c.position, *ranks).where(hits, allowed.is_not(None)).cte("row")
        counts = [
            literal(frequent[term])
            if term in frequent
            else func.count().filter(row.c[rank.name] > 0)
            for term, rank in zip(terms, ranks, strict=True)
        ]
        weight = select(
            *(
                _weigh(count, in_scope).label(rank.name)
                for count, rank in zip(counts, ranks, strict=True)
            )
        ).select_from(row)
        weights = weight.cte("weight")
        score = _add_up(row.c[rank.name] * weights.c[rank.name] for rank in ranks)
        query = select(row.c.position).select_from(row.join(weights, literal(value=True)))
        best = query.order_by(score.desc(), row.c.position.desc()).limit(limit)
        return list(self._connection.execute(best).scalars())

    def _find_newest(
        self,
        selected: Select[Any],
        terms: Sequence[QueryTerm],
        scopes: Sequence[str] | None,
        found: Sequence[int],
        limit: int,
    ) -> list[int]:
        (position,) = selected.exported_columns
        newest = (
            selected.join(self._index, self._index.c.position == position)
            .where(_matches(self._index, _write_query(terms, scopes)), position.not_in(found))
            .order_by(position.desc())
            .limit(limit)
        )
        return list(self._connection.execute(newest).scalars())

    def _read_statistics(
        self, terms: Sequence[QueryTerm], scopes: Sequence[str] | None
    ) -> "_Statistics":
        asked = [term.text for term in terms] + [scope_term(scope) for scope in scopes or ()]
        row = _statistics.fetch_first(self._connection, {"name": self._name, "terms": asked})
        rows, shares = row or (-1, None)
        return _Statistics(float(rows), shares or {})

    def _count_scope(self, scopes: Sequence[str] | None, known: "_Statistics") -> int:
        """How many rows the scopes have: about, if they are many, and exactly if they are few."""
        if scopes is None:
            estimate = known.rows
        else:
            estimate = sum(known.count(scope_term(scope)) for scope in scopes)
        if estimate > MAX_RANKED_ROWS:
            return int(estimate)
        rows = select(self._index.c.position).limit(MAX_RANKED_ROWS)
        if scopes is not None:
            rows = rows.where(_matches(self._index, _write_scopes(scopes)))
        return self._connection.execute(
            select(func.count()).select_from(rows.subquery())
        ).scalar_one()


class _Statistics:
    def __init__(self, rows: float, shares: Mapping[str, float]) -> None:
        self.rows = rows
        self._shares = shares

    def count(self, term: str) -> int:
        """About how many rows have the term. One that is not among the frequent ones is rare."""
        return int(self._shares.get(term, 0.0) * max(self.rows, 0.0))


_INSERTS: Final[dict[str, PreparedStatement]] = {}


def _insert(name: str) -> PreparedStatement:
    if name not in _INSERTS:
        index = table(name, column("position"), column("terms", TSVECTOR))
        values = {"position": bindparam("position"), "terms": cast(bindparam("terms"), TSVECTOR)}
        _INSERTS[name] = PreparedStatement(insert(index).values(values))
    return _INSERTS[name]


def _choose_terms(frequencies: Sequence[tuple[QueryTerm, int]]) -> Sequence[QueryTerm]:
    """The rarest terms, as many as can be ranked in a short time; none if each of them is too frequent."""
    chosen: list[QueryTerm] = []
    total = 0
    for term, rows in sorted(frequencies, key=lambda pair: pair[1]):
        total += rows
        is_too_much = total > MAX_RANKED_ROWS or total * (len(chosen) + 1) > MAX_RANKED_WORDS
        if is_too_much or len(chosen) == _MAX_RANKED_TERMS:
            break
        chosen.append(term)
    return chosen


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
    entries = [f"'{scope}'" for scope in scopes]
    entries += [
        f"'{term}':{','.join(map(str, at))}" if at else f"'{term}'"
        for term, at in positions.items()
    ]
    return " ".join(entries)


def _write_query(terms: Sequence[QueryTerm], scopes: Sequence[str] | None) -> str:
    words = " | ".join(map(_quote, terms))
    return words if scopes is None else f"({_write_scopes(scopes)}) & ({words})"


def _write_scopes(scopes: Sequence[str]) -> str:
    return " | ".join(f"'{scope_term(scope)}'" for scope in scopes)


def _quote(term: QueryTerm) -> str:
    return f"'{term.text}'{':*' if term.is_prefix else ''}"


def _matches(index: Any, query: str) -> ColumnElement[bool]:
    return index.c.terms.op("@@")(_parse(query))  # type: ignore[no-any-return] # the operator has no type of its own


def _parse(query: str) -> ColumnElement[Any]:
    # Not a cast of a text: a prepared statement would parse it again for each row.
    return literal(query, TSQUERY)


def _weigh(rows: ColumnElement[int], total: int) -> ColumnElement[float]:
    """``core.search.weigh_term``, by the database."""
    rest = func.greatest(total - rows, 0) + 0.5
    return func.ln(1 + rest / (rows + 0.5))


def _add_up(parts: Iterable[ColumnElement[float]]) -> ColumnElement[float]:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
