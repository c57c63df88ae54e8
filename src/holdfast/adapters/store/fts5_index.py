"""The index of words on SQLite: an FTS5 table. Ranked by BM25."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, column, delete, func, insert, select, table
from sqlalchemy.sql import ColumnElement, literal_column

from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.word_index import (
    MAX_RANKED_ROWS,
    NEWEST_ROWS,
    IndexEntry,
    choose_terms,
    scope_term,
)
from holdfast.core.search import QueryTerm, index_terms

# BM25 counts the rows of each term first. Terms beyond this would take longer for it than all the rest.
_MAX_COUNTED_ROWS: Final = 50_000
# The scopes of a row say nothing about how good it is.
_WEIGHTS: Final = (0.0, 1.0)

_removals = table("index_removals", column("index_name"), column("position"))


class _Statements:
    """The statements of one index, compiled once."""

    def __init__(self, name: str) -> None:
        self.index = table(name, column("rowid"), column("scopes"), column("terms"), column(name))
        self.match: ColumnElement[bool] = self.index.c[name].op("MATCH")(bindparam("words"))
        self.insert = PreparedStatement(insert(self.index), columns=("rowid", "scopes", "terms"))
        vocabulary = table(f"{name}_terms", column("term"), column("doc"))
        self.count = PreparedStatement(
            select(vocabulary.c.doc).where(vocabulary.c.term == bindparam("term"))
        )
        self.rank = func.bm25(literal_column(name), *_WEIGHTS)


_STATEMENTS: Final[dict[str, _Statements]] = {}


class Fts5Index:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        if name not in _STATEMENTS:
            _STATEMENTS[name] = _Statements(name)
        self._statements = _STATEMENTS[name]

    def add(self, entries: Sequence[IndexEntry]) -> None:
        rows = [
            {
                "rowid": entry.position,
                "scopes": " ".join(map(scope_term, entry.scopes)),
                "terms": " ".join(index_terms(entry.text)),
            }
            for entry in entries
        ]
        self._statements.insert.execute_many(self._connection, rows)

    def find(
        self,
        selected: Select[Any],
        terms: Sequence[QueryTerm],
        *,
        scopes: Sequence[str] | None,
        limit: int,
    ) -> Sequence[int]:
        index = self._statements.index
        (position,) = selected.exported_columns
        query = selected.join(index, index.c.rowid == position).where(self._statements.match)
        chosen = self._choose(terms, scopes)
        if chosen:
            ranked = query.order_by(self._statements.rank, position.desc()).limit(limit)
            words = _write_query(chosen, scopes)
        else:
            ranked = query.order_by(index.c.rowid.desc()).limit(min(limit, NEWEST_ROWS))
            words = _write_query(terms, scopes)
        return self._connection.execute(ranked, {"words": words}).scalars().all()

    def remove_deleted(self, limit: int) -> int:
        waiting = (_removals.c.index_name == self._name,)
        positions = (
            self._connection.execute(select(_removals.c.position).where(*waiting).limit(limit))
            .scalars()
            .all()
        )
        for position in positions:
            index = self._statements.index
            self._connection.execute(delete(index).where(index.c.rowid == position))
            self._connection.execute(
                delete(_removals).where(*waiting, _removals.c.position == position)
            )
        return len(positions)

    def _choose(
        self, terms: Sequence[QueryTerm], scopes: Sequence[str] | None
    ) -> Sequence[QueryTerm]:
        """The terms that are rare enough to be ranked by."""
        most = (
            None if scopes is None else sum(self._count_rows(scope_term(scope)) for scope in scopes)
        )
        frequencies = []
        for term in terms:
            # How many terms begin so is not known: such a term is of a script with thousands of characters.
            rows = MAX_RANKED_ROWS // 4 if term.is_prefix else self._count_rows(term.text)
            if rows <= _MAX_COUNTED_ROWS:
                frequencies.append((term, rows if most is None else min(rows, most)))
        return choose_terms(frequencies)

    def _count_rows(self, term: str) -> int:
        found = self._statements.count.fetch_first(self._connection, {"term": term})
        return 0 if found is None else int(found[0])


def _write_query(terms: Sequence[QueryTerm], scopes: Sequence[str] | None) -> str:
    """The query in the language of FTS5. Terms contain nothing that would have to be escaped."""
    words = " OR ".join(f'"{term.text}"{"*" if term.is_prefix else ""}' for term in terms)
    query = f"terms : ({words})"
    if scopes is None:
        return query
    allowed = " OR ".join(f'"{scope_term(scope)}"' for scope in scopes)
    return f"scopes : ({allowed}) AND {query}"
