"""Vectors on PostgreSQL with the extension ``vector``: a copy of the vectors in its own type, with an HNSW index for each
model and length. The bytes in the table of vectors stay what counts: if the extension is taken away, nothing is lost.

The copy of a model's vectors is complete from the moment when its index has its final name. Until then, and without the
extension, a search reads the bytes (``vector_search``)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

from sqlalchemy import Connection, Select, TextClause, func, literal, select, table, text
from sqlalchemy import column as sql_column
from sqlalchemy.sql import ColumnElement

from holdfast.adapters.store.index_hints import prefer_indexes
from holdfast.adapters.store.vector_search import ExactSearch, Selection
from holdfast.adapters.store.vector_tables import PASSAGE_VECTORS, VectorTables
from holdfast.core.embeddings import EmbeddedText, QueryVector, Vector, to_numbers
from holdfast.errors import HoldfastError

EXTENSION: Final = "vector"
# pgvector cannot index longer vectors of four bytes a number, nor longer ones of two bytes a number.
MAX_FULL_DIMENSIONS: Final = 2_000
MAX_HALF_DIMENSIONS: Final = 4_000
# How many neighbours a search collects: more find more of the nearest, and take longer.
SEARCH_WIDTH: Final = 200
# Up to so many numbers are compared one by one: that is exact, and as fast as the index.
_FEW_NUMBERS: Final = 2_500_000
# How many vectors one transaction copies. Each takes some milliseconds.
COPIED_AT_ONCE: Final = 200

_has_column = text(
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = 'vector' AND NOT attisdropped"
)
_is_installed = text("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
_is_available = text("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
_may_install = text(
    "SELECT rolsuper OR (SELECT bool_or(v.trusted) FROM pg_available_extension_versions v "
    "WHERE v.name = 'vector') AND has_database_privilege(current_database(), 'CREATE') "
    "FROM pg_roles WHERE rolname = current_user"
)
# An arbitrary constant; advisory locks are per database.
_PREPARATION_LOCK_ID: Final = 0x686F6C66
_lock_preparation = text(f"SELECT pg_advisory_xact_lock({_PREPARATION_LOCK_ID})")
_is_valid = text("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND indisvalid")
# A filter may leave few of the neighbours that are found first: then the search goes on. Only for this transaction: behind
# a pooler the next one on the connection is somebody else's.
_set_search = text(
    "SELECT set_config('hnsw.ef_search', :width, true), "
    "set_config('hnsw.iterative_scan', 'strict_order', true)"
)


class PgvectorState(StrEnum):
    """``used``: there are vectors in its own type. ``ready``: the first vectors will be. ``forbidden``: the user of the
    database may not install it. ``missing``: the machine of the database does not have it."""

    USED = "used"
    READY = "ready"
    FORBIDDEN = "forbidden"
    MISSING = "missing"


def read_state(connection: Connection) -> PgvectorState:
    """Find out what a server on this database would do. Nothing is changed."""
    if connection.execute(_has_column, {"name": PASSAGE_VECTORS.copy_name}).first() is not None:
        return PgvectorState.USED
    if connection.execute(_is_installed).first() is not None:
        return PgvectorState.READY
    if connection.execute(_is_available).first() is None:
        return PgvectorState.MISSING
    may_install = connection.execute(_may_install).scalar_one()
    return PgvectorState.READY if may_install else PgvectorState.FORBIDDEN


class PgvectorCopy:
    """The copy of one kind of vectors."""

    def __init__(self, connection: Connection, kind: VectorTables) -> None:
        self._connection = connection
        self._kind = kind
        self._name = kind.copy_name

    def add(self, stored: Sequence[tuple[int, str, EmbeddedText]]) -> None:
        """Copy new vectors, given with their numbers and containers. Called after they were written to the table of vectors:
        whoever creates the copy locks that table, so that none is missed."""
        if not stored or not self._exists():
            return
        insertion = text(
            f"INSERT INTO {self._name} (number, position, container_id, model, dimensions, vector) "  # noqa: S608 - a name from here
            "VALUES (:number, :position, :container_id, :model, :dimensions, CAST(:vector AS vector)) "
            "ON CONFLICT (number) DO NOTHING"
        )
        rows = [
            {
                "number": number,
                "position": item.position,
                "container_id": container_id,
                "model": item.model,
                "dimensions": item.vector.dimensions,
                "vector": _write(item.vector),
            }
            for number, container_id, item in stored
        ]
        self._connection.execute(insertion, rows)

    def prepare(self, model: str, dimensions: int) -> bool:
        """Do the next thing that the search of this model needs; return whether there is more. One transaction is short."""
        if dimensions > MAX_HALF_DIMENSIONS:
            return False
        # One at a time: a leader that has just been one may still be at it.
        self._connection.execute(_lock_preparation)
        if not self._exists():
            return self._create_table()
        index = index_name(self._kind, model, dimensions)
        if self._is_valid(index):
            return False
        unfinished = f"{index}_new"
        if not self._is_valid(unfinished):
            self._create_index(unfinished, model, dimensions)
            return True
        if self._copy_more(model, dimensions):
            return True
        self._connection.execute(text(f"ALTER INDEX {unfinished} RENAME TO {index}"))
        return False

    def is_complete(self, model: str, dimensions: int) -> bool:
        return dimensions <= MAX_HALF_DIMENSIONS and self._is_valid(
            index_name(self._kind, model, dimensions)
        )

    def _exists(self) -> bool:
        return self._connection.execute(_has_column, {"name": self._name}).first() is not None

    def _is_valid(self, index: str) -> bool:
        return self._connection.execute(_is_valid, {"name": index}).first() is not None

    def _create_table(self) -> bool:
        if not self._install():
            return False
        vectors = self._kind.vectors.name
        # Nobody writes vectors until this is committed; whoever has written some has committed them.
        self._connection.execute(text(f"LOCK TABLE {vectors} IN SHARE MODE"))
        # It is there without its column if the extension was taken away.
        self._connection.execute(text(f"DROP TABLE IF EXISTS {self._name}"))
        self._connection.execute(
            text(
                f"CREATE TABLE {self._name} (number bigint PRIMARY KEY REFERENCES {vectors} ON DELETE CASCADE, "
                "position bigint NOT NULL, container_id text NOT NULL, model text NOT NULL, "
                "dimensions integer NOT NULL, vector vector NOT NULL)"
            )
        )
        for columns in ("container_id, model", "position"):
            # From a container to its vectors, or from the few texts that match to theirs.
            self._connection.execute(text(f"CREATE INDEX ON {self._name} ({columns})"))
        return True

    def _install(self) -> bool:
        if self._connection.execute(_is_installed).first() is not None:
            return True
        if self._connection.execute(_is_available).first() is None:
            return False
        try:
            with self._connection.begin_nested():
                self._connection.execute(text(f"CREATE EXTENSION IF NOT EXISTS {EXTENSION}"))
        except HoldfastError:
            # This user of the database may not. ``doctor`` says so.
            return False
        return True

    def _create_index(self, name: str, model: str, dimensions: int) -> None:
        kind = _index_type(dimensions)
        quoted = model.replace("'", "''")
        self._connection.exec_driver_sql(
            f"CREATE INDEX {name} ON {self._name} USING hnsw ((vector::{kind}({dimensions})) {kind}_cosine_ops) "
            f"WHERE model = '{quoted}' AND dimensions = {dimensions}".replace("%", "%%")
        )

    def _copy_more(self, model: str, dimensions: int) -> bool:
        """Copy some of the vectors that are missing; return whether there were any."""
        vectors, copy = self._kind.vectors, table(self._name, sql_column("number"))
        c = vectors.c
        rows = self._connection.execute(
            select(c.number, c.container_id, c.position, c.vector)
            .outerjoin(copy, copy.c.number == c.number)
            .where(c.model == model, c.dimensions == dimensions, copy.c.number.is_(None))
            .order_by(c.number)
            .limit(COPIED_AT_ONCE)
            # A row that is deleted at the same moment could not be referred to.
            .with_for_update(of=vectors, key_share=True, read=True)
        ).all()
        self.add([(row[0], row[1], EmbeddedText(row[2], model, Vector(row[3]))) for row in rows])
        return bool(rows)


class PgvectorSearch:
    """Searches the copy, if it is complete, and else the bytes."""

    def __init__(self, connection: Connection, kind: VectorTables) -> None:
        self._connection = connection
        self._kind = kind
        self._copy = PgvectorCopy(connection, kind)
        self._bytes = ExactSearch(connection, kind)

    def find(
        self, selected: Selection, query: QueryVector, containers: Sequence[str], limit: int
    ) -> Sequence[int]:
        dimensions = query.vector.dimensions
        if not self._copy.is_complete(query.model, dimensions):
            return self._bytes.find(selected, query, containers, limit)
        prefer_indexes(self._connection)
        nearest = self._select_nearest(selected.rows, query, containers, limit)
        few = _FEW_NUMBERS // dimensions
        if self._count(selected.rows, few + 1) > few:
            self._connection.execute(_set_search, {"width": str(max(SEARCH_WIDTH, limit))})
            kind = f"{_index_type(dimensions)}({dimensions})"
            found = self._execute(
                nearest.order_by(_distance(self._kind.copy_name, query.vector, kind))
            )
            if len(found) == limit:
                return found
        # Few match: the index would look through all of them for the rest.
        distance = _distance(self._kind.copy_name, query.vector)
        (position,) = selected.rows.exported_columns
        return self._execute(nearest.order_by(distance, position.desc()))

    def _select_nearest(
        self, selected: Select[Any], query: QueryVector, containers: Sequence[str], limit: int
    ) -> Select[Any]:
        (position,) = selected.exported_columns
        copy = self._table()
        return (
            selected.join(copy, copy.c.position == position)
            .where(*_is_of(copy, query), copy.c.container_id.in_(containers))
            .limit(limit)
        )

    def _count(self, selected: Select[Any], most: int) -> int:
        """How many texts match, up to so many."""
        some = selected.limit(most).subquery()
        return self._connection.execute(select(func.count()).select_from(some)).scalar_one()

    def _execute(self, statement: Select[Any]) -> Sequence[int]:
        return self._connection.execute(statement).scalars().all()

    def _table(self) -> Any:
        names = ("position", "container_id", "model", "dimensions")
        return table(self._kind.copy_name, *map(sql_column, names))


def index_name(kind: VectorTables, model: str, dimensions: int) -> str:
    """The name of a model's index: PostgreSQL cuts longer ones."""
    return f"ix_{kind.copy_name}_{dimensions}_{crc32(model.encode()):08x}"


def _index_type(dimensions: int) -> str:
    return "vector" if dimensions <= MAX_FULL_DIMENSIONS else "halfvec"


def _is_of(copy: Any, query: QueryVector) -> tuple[ColumnElement[bool], ...]:
    """The condition of the index, word for word: with parameters PostgreSQL could not tell that it applies."""
    return (
        copy.c.model == literal(query.model, literal_execute=True),
        copy.c.dimensions == literal(query.vector.dimensions, literal_execute=True),
    )


def _distance(copy_name: str, vector: Vector, kind: str | None = None) -> TextClause:
    """The cosine distance. Without a kind it is computed for each row, since no index has this expression."""
    stored = f"{copy_name}.vector"
    if kind is not None:
        stored = f"({stored}::{kind})"
    return text(f"{stored} <=> CAST(:query_vector AS {kind or 'vector'})").bindparams(
        query_vector=_write(vector)
    )


def _write(vector: Vector) -> str:
    return f"[{','.join(map(repr, to_numbers(vector)))}]"
