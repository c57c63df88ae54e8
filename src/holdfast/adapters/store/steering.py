"""Which index a query takes. PostgreSQL knows what is in its tables and chooses well; SQLite guesses from the number of
conditions, so it is told."""

from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import ReturnTypeFromArgs


class set_aside(ReturnTypeFromArgs[Any]):  # noqa: N801 - it is used as a function
    """A column that is compared, but by which SQLite looks up no index."""

    inherit_cache = True


@compiles(set_aside)
def _as_it_is(element: set_aside, compiler: SQLCompiler, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(set_aside, "sqlite")
def _not_by_index(element: set_aside, compiler: SQLCompiler, **options: Any) -> str:
    # https://sqlite.org/optoverview.html: "disqualifying WHERE clause terms using unary +"
    return f"+{compiler.process(element.clauses, **options)}"
