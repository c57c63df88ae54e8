"""Hints that make a query use the right index. PostgreSQL has statistics and chooses well if sequential scans are off.
SQLite guesses from the number of conditions, so the other columns are excluded explicitly."""

from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import ReturnTypeFromArgs

_DISABLE_SEQUENTIAL_SCANS = text("SET LOCAL enable_seqscan = off")


def prefer_indexes(connection: Connection) -> None:
    """Make PostgreSQL scan a whole table only if no index can be used, for the rest of the transaction. By default it
    avoids large index scans because it assumes slow random access."""
    if connection.dialect.name == "postgresql":
        connection.execute(_DISABLE_SEQUENTIAL_SCANS)


class without_index(ReturnTypeFromArgs[Any]):  # noqa: N801 - used as a function
    """A column in a condition for which SQLite must not use an index."""

    inherit_cache = True


@compiles(without_index)
def _compile_unchanged(element: without_index, compiler: SQLCompiler, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(without_index, "sqlite")
def _compile_for_sqlite(element: without_index, compiler: SQLCompiler, **options: Any) -> str:
    # https://sqlite.org/optoverview.html: "disqualifying WHERE clause terms using unary +"
    return f"+{compiler.process(element.clauses, **options)}"
