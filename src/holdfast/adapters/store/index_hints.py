"""Which index a query takes. PostgreSQL knows what is in its tables and chooses well, once it may not read a whole
table; SQLite guesses from the number of conditions, so it is told."""

from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import ReturnTypeFromArgs

_DISABLE_SEQUENTIAL_SCANS = text("SET LOCAL enable_seqscan = off")


def prefer_indexes(connection: Connection) -> None:
    """For the rest of the transaction: a table is read as a whole only if it has no index that would do. PostgreSQL
    would rather read a large one than walk its index, since it takes every page of that for a move of a disk's arm."""
    if connection.dialect.name == "postgresql":
        connection.execute(_DISABLE_SEQUENTIAL_SCANS)


class without_index(ReturnTypeFromArgs[Any]):  # noqa: N801 - it is used as a function
    """A column that is compared, but by which SQLite looks up no index."""

    inherit_cache = True


@compiles(without_index)
def _compile_unchanged(element: without_index, compiler: SQLCompiler, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(without_index, "sqlite")
def _compile_for_sqlite(element: without_index, compiler: SQLCompiler, **options: Any) -> str:
    # https://sqlite.org/optoverview.html: "disqualifying WHERE clause terms using unary +"
    return f"+{compiler.process(element.clauses, **options)}"
