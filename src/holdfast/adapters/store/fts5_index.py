"""The index of words on SQLite: an FTS5 table. It finds the rows of each term; they are ranked here. FTS5's own ``bm25``
counts all rows of each term first, also those of other archives and agents: with a million rows that takes longer than the
rest, and lets the words of others change the order."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    column,
    delete,
    func,
    insert,
    select,
    table,
)
from sqlalchemy.sql import ColumnElement

from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.word_index import (
    IndexEntry,
    scope_term,
)
from holdfast.core.search import Candidate, QueryTerm, index_terms, rank_candidates, weigh_term

# A term that so many rows have is frequent. It finds rows only if the others find too few: then the newest ones. Less if
# the query has many terms, so that a long query does not take longer.
_FREQUENT_ROWS: Final = 1_000
_FREQUENT_ROWS_OF_ALL: Final = 8_000
_FEWEST_ROWS: Final = 200
# The rarer terms may find so many rows together. Further terms count as frequent.
_MAX_CANDIDATES: Final = 2_000
# So many of them, those with the rarest words, are ranked by how often they have each word.
_FINALISTS: Final = 200
# So many of the newest rows, if all terms are frequent.
_NEWEST: Final = 100
# How much of a text is looked at for that.
_COUNTED_CHARS: Final = 20_000
# How much text one transaction removes: some milliseconds, in which no other can write.
_MAX_REMOVED_CHARS: Final = 40_000

_removals = table("index_removals", column("index_name"), column("position"))
_delete_removal = PreparedStatement(
    delete(_removals).where(
        _removals.c.index_name == bindparam("name"), _removals.c.position == bindparam("position")
    )
)
# As JSON: a list of so many values would be a new statement each time.
_given = func.json_each(bindparam("positions")).table_valued("value")


class _Statements:
    """The statements of one index, compiled once."""

    def __init__(self, name: str) -> None:
        index = self.index = table(name, column("rowid"), column("terms"), column(name))
        rowid = index.c.rowid
        self.match: ColumnElement[bool] = index.c[name].op("MATCH")(bindparam("words"))
        self.insert = PreparedStatement(insert(index), columns=("rowid", "terms"))
        self.delete = PreparedStatement(delete(index).where(rowid == bindparam("position")))
        newest = select(rowid).order_by(rowid.desc())
        self.last = PreparedStatement(newest.limit(1))
        self.newest = PreparedStatement(newest.where(self.match).limit(bindparam("most")))
        self.load = PreparedStatement(
            select(rowid, index.c.terms).where(rowid.in_(select(_given.c.value)))
        )


_STATEMENTS: Final[dict[str, _Statements]] = {}


class _TermRows:
    """The newest rows of a term, newest first. ``estimate``: about how many there are."""

    def __init__(self, positions: Sequence[int], most: int, last: int) -> None:
        self.positions = positions
        self.is_frequent = len(positions) >= most
        self.estimate = float(len(positions))
        if self.is_frequent:
            # As if the older rows had it as often as the newest.
            self.estimate *= max(last / (last - positions[-1] + 1), 1.0)


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
                "terms": " ".join([*map(scope_term, entry.scopes), *index_terms(entry.text)]),
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
        last_row = self._statements.last.fetch_first(self._connection, {})
        if last_row is None or limit <= 0:
            return []
        last = int(last_row[0])
        total = float(last)
        if scopes is not None:
            total = self._look_up(_write_scopes(scopes), _FREQUENT_ROWS, last).estimate
            # To compare two long lists takes longer than to check the rows of one.
            scopes = None if total > last / 2 else scopes
        most = min(_FREQUENT_ROWS, max(_FREQUENT_ROWS_OF_ALL // len(terms), _FEWEST_ROWS))
        found = {term: self._look_up(_write_query([term], scopes), most, last) for term in terms}
        weights = {term: weigh_term(rows.estimate, total) for term, rows in found.items()}
        finalists = self._choose_finalists(selected, found, weights, limit)
        if len(finalists) < limit and any(rows.is_frequent for rows in found.values()):
            words = _write_query(terms, scopes)
            newest = self._find_newest(selected, words, max(_NEWEST, limit))
            finalists = list({*finalists, *newest})
        return self._rank(finalists, weights)[:limit]

    def find_missing(self, positions: Sequence[int]) -> set[int]:
        index = self._statements.index
        query = select(index.c.rowid).where(index.c.rowid.in_(select(_given.c.value)))
        rows = self._connection.execute(query, {"positions": _to_json(positions)})
        return set(positions).difference(rows.scalars())

    def has_deleted(self) -> bool:
        waiting = select(_removals.c.position).where(_removals.c.index_name == self._name)
        return self._connection.execute(waiting.limit(1)).first() is not None

    def remove_deleted(self, limit: int) -> int:
        index = self._statements.index
        waiting = (
            select(_removals.c.position, func.length(index.c.terms))
            .outerjoin(index, index.c.rowid == _removals.c.position)
            .where(_removals.c.index_name == self._name)
            .limit(limit)
        )
        rows = []
        chars = 0
        for position, length in self._connection.execute(waiting).all():
            rows.append({"position": position, "name": self._name})
            chars += length or 0
            if chars > _MAX_REMOVED_CHARS:
                break
        self._statements.delete.execute_many(self._connection, rows)
        _delete_removal.execute_many(self._connection, rows)
        return len(rows)

    def _look_up(self, words: str, most: int, last: int) -> _TermRows:
        """The newest rows of a query of the index, selected or not."""
        rows = self._statements.newest.fetch_all(self._connection, {"words": words, "most": most})
        return _TermRows([row[0] for row in rows], most, last)

    def _choose_finalists(
        self,
        selected: Select[Any],
        found: Mapping[QueryTerm, _TermRows],
        weights: Mapping[QueryTerm, float],
        limit: int,
    ) -> Sequence[int]:
        """The selected rows with the rarest terms."""
        scores: dict[int, float] = defaultdict(float)
        for term, rows in sorted(found.items(), key=lambda pair: pair[1].estimate):
            if rows.is_frequent or len(scores) + len(rows.positions) > _MAX_CANDIDATES:
                break
            for position in rows.positions:
                scores[position] += weights[term]
        query = select(_given.c.value).where(_is_selected(selected, _given.c.value))
        allowed = self._connection.execute(query, {"positions": _to_json(scores)})
        return heapq.nlargest(
            max(_FINALISTS, limit), allowed.scalars(), key=lambda row: (scores[row], row)
        )

    def _find_newest(self, selected: Select[Any], words: str, most: int) -> Sequence[int]:
        """The newest selected rows of a query of the index."""
        rowid = self._statements.index.c.rowid
        newest = (
            select(rowid)
            .where(self._statements.match, _is_selected(selected, rowid))
            .order_by(rowid.desc())
        )
        return self._connection.execute(newest.limit(most), {"words": words}).scalars().all()

    def _rank(self, positions: Sequence[int], weights: Mapping[QueryTerm, float]) -> Sequence[int]:
        rows = self._statements.load.fetch_all(self._connection, {"positions": _to_json(positions)})
        return rank_candidates(
            [_to_candidate(position, indexed, weights) for position, indexed in rows]
        )


def _is_selected(selected: Select[Any], row: ColumnElement[int]) -> ColumnElement[bool]:
    """Not a join: SQLite must ask the index first and the table for each row, never the other way round."""
    (position,) = selected.exported_columns
    return selected.where(position == row).correlate(row.table).exists()


def _to_candidate(position: int, indexed: str, weights: Mapping[QueryTerm, float]) -> Candidate:
    words = indexed[:_COUNTED_CHARS].split(" ")
    counts = ((weight, _count(words, term)) for term, weight in weights.items())
    return Candidate(position, indexed.count(" ") + 1, tuple(pair for pair in counts if pair[1]))


def _count(words: Sequence[str], term: QueryTerm) -> int:
    if term.is_prefix:
        return sum(word.startswith(term.text) for word in words)
    return words.count(term.text)


def _write_query(terms: Sequence[QueryTerm], scopes: Sequence[str] | None) -> str:
    """The query in the language of FTS5. Terms contain nothing that would have to be escaped."""
    words = " OR ".join(f'"{term.text}"{"*" if term.is_prefix else ""}' for term in terms)
    return words if scopes is None else f"({_write_scopes(scopes)}) AND ({words})"


def _write_scopes(scopes: Sequence[str]) -> str:
    return " OR ".join(f'"{scope_term(scope)}"' for scope in scopes)


def _to_json(positions: Iterable[int]) -> str:
    return msgspec.json.encode(list(positions)).decode()
