"""What providers were sent and answered, where an operator has it kept."""

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared import Prepared
from holdfast.adapters.store.rows import Shape
from holdfast.core.traces import ProviderTrace

_traces = tables.provider_traces

TRACE = Shape(ProviderTrace, _traces)

# Positions are the database's own affair.
_add = Prepared(
    insert(_traces), columns=[column.name for column in _traces.c if column.name != "position"]
)


class SqlTraces:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, traces: Sequence[ProviderTrace]) -> None:
        _add.run_each(self._connection, [TRACE.row(trace) for trace in traces])

    def of_step(self, organization_id: str, step_id: str) -> Sequence[ProviderTrace]:
        rows = self._connection.execute(
            select(*TRACE.columns)
            .where(_traces.c.step_id == step_id, _traces.c.organization_id == organization_id)
            .order_by(_traces.c.position)
        )
        return [TRACE.value(row) for row in rows]
