"""Prepared statements for what every turn executes: SQLAlchemy compiles them once, then the driver executes them directly.

Not for statements that are built anew each time or contain a list (``IN``): those are executed by the connection.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Delete, Insert, Select, TextClause, Update
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor

from holdfast.adapters.store.time_limit import refuse_late_statement

T = TypeVar("T")

Statement: TypeAlias = Select[Any] | Insert | Update | Delete | TextClause
Values: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Sequence[Any]
_Converter: TypeAlias = Callable[[Any], Any]


class PreparedStatement:
    """A statement with parameters by name. An insert or update writes all columns unless ``columns`` names some. The
    results of SQL text are as the driver returns them."""

    def __init__(self, statement: Statement, columns: Collection[str] | None = None) -> None:
        self._statement = statement
        self._columns = columns
        self._compiled: dict[str, _Compiled] = {}

    def fetch_all(self, connection: Connection, values: Values) -> Iterator[Row]:
        """Execute and return all rows, in the order of the statement's columns."""
        plan = self._compile(connection)
        parameters = plan.parameters(values)

        def work(cursor: DBAPICursor) -> Iterable[Row]:
            cursor.execute(plan.text, parameters)
            return cursor.fetchall()

        return plan.convert_rows(run_on_cursor(connection, plan.text, work))

    def fetch_first(self, connection: Connection, values: Values) -> Row | None:
        """Execute and return the first row; None if there is none."""
        return next(self.fetch_all(connection, values), None)

    def execute(self, connection: Connection, values: Values) -> int:
        """Execute and return how many rows were written."""
        plan = self._compile(connection)
        parameters = plan.parameters(values)

        def work(cursor: DBAPICursor) -> int:
            cursor.execute(plan.text, parameters)
            return cursor.rowcount

        return run_on_cursor(connection, plan.text, work)

    def execute_many(self, connection: Connection, many: Iterable[Values]) -> None:
        plan = self._compile(connection)
        parameters = [plan.parameters(values) for values in many]
        if parameters:
            run_on_cursor(
                connection, plan.text, lambda cursor: cursor.executemany(plan.text, parameters)
            )

    def _compile(self, connection: Connection) -> "_Compiled":
        # By name: all connections to one kind of database use the same SQL.
        plan = self._compiled.get(connection.dialect.name)
        if plan is None:
            plan = _compile_statement(self._statement, self._columns, connection.dialect)
            self._compiled[connection.dialect.name] = plan
        return plan


def run_on_cursor(connection: Connection, text: str, work: Callable[[DBAPICursor], T]) -> T:
    """Run ``work`` with a cursor of the driver. Its errors are translated as everywhere (``driver_errors``)."""
    refuse_late_statement(connection)
    cursor = connection.connection.cursor()
    try:
        return work(cursor)
    except (connection.dialect.loaded_dbapi.Error, ValueError, OverflowError) as error:
        connection._handle_dbapi_exception(error, text, None, cursor, None)  # noqa: SLF001 - SQLAlchemy has no public function for this


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement in the form that one driver takes."""

    text: str
    positional: bool
    # For each parameter in the text: its name, and the conversion of its value for the driver.
    binds: tuple[tuple[str, _Converter | None], ...]
    constants: Values
    # The result columns whose values need a conversion, by index.
    converted_columns: tuple[tuple[int, _Converter], ...]

    def parameters(self, values: Values) -> Any:
        if self.constants:
            values = {**self.constants, **values}
        if self.positional:
            return [
                values[name] if convert is None else convert(values[name])
                for name, convert in self.binds
            ]
        return {
            name: values[name] if convert is None else convert(values[name])
            for name, convert in self.binds
        }

    def convert_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            values = list(row)
            for index, convert in self.converted_columns:
                values[index] = convert(values[index])
            yield values


def _compile_statement(
    statement: Statement, columns: Collection[str] | None, dialect: Dialect
) -> _Compiled:
    compiled = statement.compile(
        dialect=dialect, column_keys=None if columns is None else list(columns)
    )
    named = {name: parameter for parameter, name in compiled.bind_names.items()}
    order = (compiled.positiontup or ()) if compiled.positional else tuple(named)
    results = () if isinstance(statement, TextClause) else statement.exported_columns
    return _Compiled(
        text=str(compiled),
        positional=compiled.positional,
        binds=tuple(
            (name, named[name].type.dialect_impl(dialect).bind_processor(dialect)) for name in order
        ),
        constants={name: each.value for name, each in named.items() if not each.required},
        converted_columns=tuple(
            (index, convert)
            for index, column in enumerate(results)
            if (convert := column.type.dialect_impl(dialect).result_processor(dialect, None))
        ),
    )
