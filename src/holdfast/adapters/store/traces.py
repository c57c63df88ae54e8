"""Provider traces: requests to model providers and their answers."""

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.traces import ProviderTrace

_traces = tables.provider_traces

TRACE = RowMapper(ProviderTrace, _traces)

# Positions are assigned by the database.
_insert = PreparedStatement(
    insert(_traces), columns=[column.name for column in _traces.c if column.name != "position"]
)


class SqlTraces:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, traces: Sequence[ProviderTrace]) -> None:
        _insert.execute_many(self._connection, [TRACE.to_row(trace) for trace in traces])

    def list_of_step(self, organization_id: str, step_id: str) -> Sequence[ProviderTrace]:
        rows = self._connection.execute(
            select(*TRACE.columns)
            .where(_traces.c.step_id == step_id, _traces.c.organization_id == organization_id)
            .order_by(_traces.c.position)
        )
        return [TRACE.from_row(row) for row in rows]
