"""Statements that every turn runs: SQLAlchemy says once what they are, from then on the driver runs them.

Not for statements that are built anew each time or hold a list (``IN``): those go through the connection.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Delete, Insert, Select, Update
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor

T = TypeVar("T")

Statement: TypeAlias = Select[Any] | Insert | Update | Delete
Values: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Sequence[Any]
_Convert: TypeAlias = Callable[[Any], Any]


class Prepared:
    """A statement, its parameters given by name. It writes whole rows unless ``columns`` names some."""

    def __init__(self, statement: Statement, columns: Collection[str] | None = None) -> None:
        self._statement = statement
        self._columns = columns
        self._plans: dict[str, _Plan] = {}

    def rows(self, connection: Connection, values: Values) -> Iterator[Row]:
        """What it selects or returns, in the order of its columns."""
        plan = self._plan(connection)
        parameters = plan.parameters(values)

        def work(cursor: DBAPICursor) -> Iterable[Row]:
            cursor.execute(plan.text, parameters)
            return cursor.fetchall()

        return plan.results(driven(connection, plan.text, work))

    def row(self, connection: Connection, values: Values) -> Row | None:
        """The first of its rows."""
        return next(self.rows(connection, values), None)

    def run(self, connection: Connection, values: Values) -> int:
        """How many rows it wrote."""
        plan = self._plan(connection)
        parameters = plan.parameters(values)

        def work(cursor: DBAPICursor) -> int:
            cursor.execute(plan.text, parameters)
            return cursor.rowcount

        return driven(connection, plan.text, work)

    def run_each(self, connection: Connection, many: Iterable[Values]) -> None:
        plan = self._plan(connection)
        parameters = [plan.parameters(values) for values in many]
        if parameters:
            driven(connection, plan.text, lambda cursor: cursor.executemany(plan.text, parameters))

    def _plan(self, connection: Connection) -> "_Plan":
        # By name: every connection of this process to one kind of database speaks the same SQL.
        plan = self._plans.get(connection.dialect.name)
        if plan is None:
            plan = _planned(self._statement, self._columns, connection.dialect)
            self._plans[connection.dialect.name] = plan
        return plan


def driven(connection: Connection, text: str, work: Callable[[DBAPICursor], T]) -> T:
    """Work on a cursor of the driver; its errors mean what they mean everywhere (``driver_errors``)."""
    cursor = connection.connection.cursor()
    try:
        return work(cursor)
    except (connection.dialect.loaded_dbapi.Error, ValueError, OverflowError) as error:
        connection._handle_dbapi_exception(error, text, None, cursor, None)  # noqa: SLF001 - SQLAlchemy has no public door to its own handling


@dataclass(frozen=True, slots=True)
class _Plan:
    """A statement as one driver takes it."""

    text: str
    positional: bool
    # Each place in the text: the parameter's name and what the driver needs done to its value.
    places: tuple[tuple[str, _Convert | None], ...]
    constants: Values
    # The columns of a result whose values are not what the driver gives.
    columns: tuple[tuple[int, _Convert], ...]

    def parameters(self, values: Values) -> Any:
        if self.constants:
            values = {**self.constants, **values}
        if self.positional:
            return [
                values[name] if convert is None else convert(values[name])
                for name, convert in self.places
            ]
        return {
            name: values[name] if convert is None else convert(values[name])
            for name, convert in self.places
        }

    def results(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            values = list(row)
            for index, convert in self.columns:
                values[index] = convert(values[index])
            yield values


def _planned(statement: Statement, columns: Collection[str] | None, dialect: Dialect) -> _Plan:
    compiled = statement.compile(
        dialect=dialect, column_keys=None if columns is None else list(columns)
    )
    named = {name: parameter for parameter, name in compiled.bind_names.items()}
    order = (compiled.positiontup or ()) if compiled.positional else tuple(named)
    return _Plan(
        text=str(compiled),
        positional=compiled.positional,
        places=tuple(
            (name, named[name].type.dialect_impl(dialect).bind_processor(dialect)) for name in order
        ),
        constants={name: each.value for name, each in named.items() if not each.required},
        columns=tuple(
            (index, convert)
            for index, column in enumerate(statement.exported_columns)
            if (convert := column.type.dialect_impl(dialect).result_processor(dialect, None))
        ),
    )
