"""Open tool calls: rows that exist from the model's answer until the result message is stored."""

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
from holdfast.adapters.store.columns import to_json
from holdfast.adapters.store.index_hints import without_index
from holdfast.adapters.store.messages import MESSAGE
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.core.approvals import ApprovalQuery, OverdueRequest
from holdfast.core.deadlines import Deadline
from holdfast.core.messages import CallState, Message, OpenCall, ToolCall, ToolReturn
from holdfast.core.runs import RunStatus

_calls = tables.calls
_messages = tables.messages
_runs = tables.runs

# Requests are found by the run that waits, so that the length of the history does not matter. That run need not be the
# one that asked: after a partial answer, the run of the answer waits.
_paged_list = PagedList(
    "Approval",
    _runs.c.approval_id,
    organization_id=_runs.c.organization_id,
    orders={"created_at": _runs.c.asked_at, "expires_at": _runs.c.expires_at},
    only_with_value=("created_at",),
)

_call_decoder = msgspec.json.Decoder(ToolCall)
_result_decoder = msgspec.json.Decoder(ToolReturn)

_select_open = PreparedStatement(
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
_insert = PreparedStatement(insert(_calls))
_update = PreparedStatement(
    update(_calls).where(
        _calls.c.thread_id == bindparam("thread"), _calls.c.call_id == bindparam("this_call")
    ),
    columns=("state", "result", "expires_at", "on_timeout"),
)
_delete_all = PreparedStatement(delete(_calls).where(_calls.c.thread_id == bindparam("thread")))
# Literal SQL, as in the partial index of paused runs: see ``run_list.status_condition``.
_is_paused = text(f"runs.status = '{RunStatus.PAUSED}'")
_select_overdue = PreparedStatement(
    select(_runs.c.organization_id, _runs.c.approval_id)
    .where(_runs.c.expires_at <= bindparam("now"), _is_paused)
    .order_by(_runs.c.expires_at)
)
_select_next_deadline = PreparedStatement(
    select(func.min(_runs.c.expires_at)).where(_runs.c.expires_at > bindparam("now"), _is_paused)
)


class SqlCalls:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_open(self, thread_id: str) -> Sequence[OpenCall]:
        return [
            _from_row(*row)
            for row in _select_open.fetch_all(self._connection, {"thread": thread_id})
        ]

    def put(self, thread_id: str, calls: Sequence[OpenCall]) -> None:
        known = {item.call.id for item in self.list_open(thread_id)}
        new: list[dict[str, object]] = []
        for item in calls:
            mutable = _mutable_columns(item)
            if item.call.id in known:
                which = {"thread": thread_id, "this_call": item.call.id}
                _update.execute(self._connection, mutable | which)
            else:
                ordinal = len(known) + len(new)
                new.append(_constant_columns(thread_id, item) | mutable | {"ordinal": ordinal})
        _insert.execute_many(self._connection, new)

    def close(self, thread_id: str) -> None:
        _delete_all.execute(self._connection, {"thread": thread_id})

    def list_requests(self, organization_id: str, query: ApprovalQuery) -> Sequence[Message]:
        # The page is selected by the index alone; then only its own messages are read.
        page = select(_runs.c.approval_id).where(*_conditions(query))
        found = _paged_list.select_page(self._connection, page, organization_id, query.page)
        ids = [approval_id for (approval_id,) in found]
        selected = select(*MESSAGE.columns).where(_messages.c.id.in_(ids))
        rows = {row.id: row for row in map(MESSAGE.from_row, self._connection.execute(selected))}
        return [rows[approval_id] for approval_id in ids]

    def count_requests(self, organization_id: str, query: ApprovalQuery) -> int:
        selected = (
            select(func.count())
            .select_from(_runs)
            .where(_runs.c.organization_id == organization_id, *_conditions(query))
        )
        return self._connection.execute(selected).scalar_one()

    def deadlines(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Deadline]]:
        found: dict[str, dict[str, Deadline]] = {}
        if not thread_ids:
            return found
        selected = (
            select(_calls.c.thread_id, _calls.c.call_id, _calls.c.expires_at, _calls.c.on_timeout)
            .where(_calls.c.thread_id.in_(thread_ids), _calls.c.expires_at.is_not(None))
            .order_by(_calls.c.thread_id, _calls.c.ordinal)
        )
        for thread_id, call_id, *deadline in self._connection.execute(selected):
            found.setdefault(thread_id, {})[call_id] = Deadline(*deadline)
        return found

    def list_overdue(self, now: datetime) -> Sequence[OverdueRequest]:
        return [
            OverdueRequest(*row)
            for row in _select_overdue.fetch_all(self._connection, {"now": now})
        ]

    def next_deadline(self, now: datetime) -> datetime | None:
        row = _select_next_deadline.fetch_first(self._connection, {"now": now})
        return row[0] if row else None


def _conditions(query: ApprovalQuery) -> list[ColumnElement[bool] | TextClause]:
    # The second condition is true of every paused run. It makes SQLite use the index of the requests.
    conditions: list[ColumnElement[bool] | TextClause] = [_is_paused, _runs.c.asked_at.is_not(None)]
    if query.tool is not None:
        # Matches only the call's own name: quotes within its arguments are escaped.
        has_name = _calls.c.call.contains(f'"name":{to_json(query.tool)},', autoescape=True)
        is_held = (_calls.c.thread_id == _runs.c.thread_id, _calls.c.state == CallState.HELD)
        conditions.append(exists().where(*is_held, has_name))
    if query.agent_id is not None:
        # An agent may have many runs, and few of them wait.
        conditions.append(without_index(_runs.c.agent_id) == query.agent_id)
    if query.thread_id is not None:
        conditions.append(_runs.c.thread_id == query.thread_id)
    return conditions


def _from_row(
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


def _constant_columns(thread_id: str, item: OpenCall) -> dict[str, object]:
    return {
        "thread_id": thread_id,
        "call_id": item.call.id,
        "message_id": item.message_id,
        "step_id": item.step_id,
        "call": to_json(item.call),
    }


def _mutable_columns(item: OpenCall) -> dict[str, object]:
    deadline = item.deadline
    return {
        "state": item.state,
        "result": None if item.result is None else to_json(item.result),
        "expires_at": deadline.at if deadline else None,
        "on_timeout": deadline.outcome if deadline else None,
    }
