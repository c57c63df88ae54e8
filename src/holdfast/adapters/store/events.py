"""The durable events of runs. Consecutive events share a row; events of a stored message refer to it by id."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, insert, select

from holdfast.adapters.store import tables
from holdfast.adapters.store.columns import to_json
from holdfast.adapters.store.messages import MESSAGE
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.core.events import Announced, Event, MessageStored, RunEnded, Streamed

_events = tables.events

_decoder = msgspec.json.Decoder(list[Streamed | Announced | RunEnded])

_insert = PreparedStatement(insert(_events))
_select_after = PreparedStatement(
    select(*MESSAGE.columns, _events.c.seq, _events.c.last_seq, _events.c.body.label("facts"))
    .select_from(_events)
    .outerjoin(tables.messages, tables.messages.c.id == _events.c.message_id)
    .where(_events.c.run_id == bindparam("run"), _events.c.last_seq > bindparam("start"))
    .order_by(_events.c.seq)
    .limit(bindparam("most"))
)


class SqlEvents:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, events: Sequence[Event]) -> None:
        rows = [_to_row(list(group)) for _, group in groupby(events, key=_message_id)]
        _insert.execute_many(self._connection, rows)

    def list_after(self, run_id: str, seq: int, limit: int) -> Sequence[Event]:
        rows = _select_after.fetch_all(
            self._connection, {"run": run_id, "start": seq, "most": limit}
        )
        # A row of a fast stream contains many events; decoding stops at the limit.
        events = (event for row in rows for event in _unpack(run_id, row) if event.seq > seq)
        return list(islice(events, limit))


def _message_id(event: Event) -> str | None:
    """Return the id of the event's stored message. Consecutive events with the same id, or with none, share a row."""
    return event.fact.message.id if isinstance(event.fact, MessageStored) else None


def _to_row(events: list[Event]) -> dict[str, object]:
    message_id = _message_id(events[0])
    return {
        "run_id": events[0].run_id,
        "seq": events[0].seq,
        "last_seq": events[-1].seq,
        "message_id": message_id,
        "body": None if message_id else to_json([event.fact for event in events]),
    }


def _unpack(run_id: str, row: Sequence[Any]) -> Iterator[Event]:
    *_, first, last, facts = row
    if facts is not None:
        for seq, fact in enumerate(_decoder.decode(facts), first):
            yield Event(run_id, seq, fact)
        return
    message = MESSAGE.from_row(row)
    for seq in range(first, last + 1):
        yield Event(run_id, seq, MessageStored(message, seq - first))
