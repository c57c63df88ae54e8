"""Open tool calls: rows that exist from the model's answer until the result row is written."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    TextClause,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    text,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.columns import encoded
from holdfast.adapters.store.messages import MESSAGE
from holdfast.adapters.store.paging import Listing
from holdfast.adapters.store.prepared import Prepared
from holdfast.adapters.store.steering import set_aside
from holdfast.core.approvals import ApprovalQuery, Overdue
from holdfast.core.deadlines import Deadline
from holdfast.core.messages import CallState, Message, OpenCall, ToolCall, ToolReturn
from holdfast.core.runs import RunStatus

_calls = tables.calls
_messages = tables.messages
_runs = tables.runs

# Found by the run that waits (which need not be the one that asked: a partial answer's run waits on), so that
# what was said before, and how much, costs nothing.
_listing = Listing(
    "Approval",
    _runs.c.approval_id,
    organization_id=_runs.c.organization_id,
    orders={"created_at": _runs.c.asked_at, "expires_at": _runs.c.expires_at},
    only_with_value=("created_at",),
)

_call_decoder = msgspec.json.Decoder(ToolCall)
_result_decoder = msgspec.json.Decoder(ToolReturn)

_open = Prepared(
    select(
        _calls.c.call,
        _calls.c.message_id,
        _calls.c.step_id,
        _calls.c.state,
        _calls.c.result,
        _calls.c.expires_at,
        _calls.c.on_timeout,
    )
    .where(_calls.c.thread_id == bindparam("thread"))
    .order_by(_calls.c.ordinal)
)
_add = Prepared(insert(_calls))
_replace = Prepared(
    update(_calls).where(
        _calls.c.thread_id == bindparam("thread"), _calls.c.call_id == bindparam("this_call")
    ),
    columns=("state", "result", "expires_at", "on_timeout"),
)
_close = Prepared(delete(_calls).where(_calls.c.thread_id == bindparam("thread")))
# In the words of the index of waiting runs, as for live ones.
_is_paused = text(f"runs.status = '{RunStatus.PAUSED}'")
_overdue = Prepared(
    select(_runs.c.organization_id, _runs.c.approval_id)
    .where(_runs.c.expires_at <= bindparam("now"), _is_paused)
    .order_by(_runs.c.expires_at)
)
_next_deadline = Prepared(
    select(func.min(_runs.c.expires_at)).where(_runs.c.expires_at > bindparam("now"), _is_paused)
)


class SqlCalls:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, thread_id: str) -> Sequence[OpenCall]:
        return [_call(*row) for row in _open.rows(self._connection, {"thread": thread_id})]

    def put(self, thread_id: str, calls: Sequence[OpenCall]) -> None:
        known = {item.call.id for item in self.open(thread_id)}
        new: list[dict[str, object]] = []
        for item in calls:
            changing = _changing(item)
            if item.call.id in known:
                which = {"thread": thread_id, "this_call": item.call.id}
                _replace.run(self._connection, changing | which)
            else:
                ordinal = len(known) + len(new)
                new.append(_fixed(thread_id, item) | changing | {"ordinal": ordinal})
        _add.run_each(self._connection, new)

    def close(self, thread_id: str) -> None:
        _close.run(self._connection, {"thread": thread_id})

    def requests(self, organization_id: str, query: ApprovalQuery) -> Sequence[Message]:
        # The page first, by the index alone: however it is sorted, only its own rows are read.
        page = select(_runs.c.approval_id).where(*_waiting(query))
        found = _listing.window(self._connection, page, organization_id, query.page)
        ids = [approval_id for (approval_id,) in found]
        wanted = select(*MESSAGE.columns).where(_messages.c.id.in_(ids))
        rows = {row.id: row for row in map(MESSAGE.value, self._connection.execute(wanted))}
        return [rows[approval_id] for approval_id in ids]

    def count_requests(self, organization_id: str, query: ApprovalQuery) -> int:
        wanted = (
            select(func.count())
            .select_from(_runs)
            .where(_runs.c.organization_id == organization_id, *_waiting(query))
        )
        return self._connection.execute(wanted).scalar_one()

    def deadlines(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Deadline]]:
        found: dict[str, dict[str, Deadline]] = {}
        if not thread_ids:
            return found
        wanted = (
            select(_calls.c.thread_id, _calls.c.call_id, _calls.c.expires_at, _calls.c.on_timeout)
            .where(_calls.c.thread_id.in_(thread_ids), _calls.c.expires_at.is_not(None))
            .order_by(_calls.c.thread_id, _calls.c.ordinal)
        )
        for thread_id, call_id, *deadline in self._connection.execute(wanted):
            found.setdefault(thread_id, {})[call_id] = Deadline(*deadline)
        return found

    def overdue(self, now: datetime) -> Sequence[Overdue]:
        return [Overdue(*row) for row in _overdue.rows(self._connection, {"now": now})]

    def next_deadline(self, now: datetime) -> datetime | None:
        row = _next_deadline.row(self._connection, {"now": now})
        return row[0] if row else None


def _waiting(query: ApprovalQuery) -> list[ColumnElement[bool] | TextClause]:
    # The second is true of all of them, and says to SQLite which index has what is asked for.
    conditions: list[ColumnElement[bool] | TextClause] = [_is_paused, _runs.c.asked_at.is_not(None)]
    if query.tool is not None:
        # The call's own key: quotes within its arguments are escaped.
        named = _calls.c.call.contains(f'"name":{encoded(query.tool)},', autoescape=True)
        of_it = (_calls.c.thread_id == _runs.c.thread_id, _calls.c.state == CallState.HELD)
        conditions.append(exists().where(*of_it, named))
    if query.agent_id is not None:
        # An agent may have many runs; few of them wait.
        conditions.append(set_aside(_runs.c.agent_id) == query.agent_id)
    if query.thread_id is not None:
        conditions.append(_runs.c.thread_id == query.thread_id)
    return conditions


def _call(
    call: str, message_id: str, step_id: str, state: Any, result: str | None, *deadline: Any
) -> OpenCall:
    return OpenCall(
        call=_call_decoder.decode(call),
        message_id=message_id,
        step_id=step_id,
        state=state,
        result=None if result is None else _result_decoder.decode(result),
        deadline=None if deadline[0] is None else Deadline(*deadline),
    )


def _fixed(thread_id: str, item: OpenCall) -> dict[str, object]:
    return {
        "thread_id": thread_id,
        "call_id": item.call.id,
        "message_id": item.message_id,
        "step_id": item.step_id,
        "call": encoded(item.call),
    }


def _changing(item: OpenCall) -> dict[str, object]:
    deadline = item.deadline
    return {
        "state": item.state,
        "result": None if item.result is None else encoded(item.result),
        "expires_at": deadline.at if deadline else None,
        "on_timeout": deadline.outcome if deadline else None,
    }
