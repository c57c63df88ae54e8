"""Runs. Their status changes here alone, as compare-and-set by the table in ``core.lifecycle``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, exists, insert, select, text, update

from holdfast.adapters.store import callbacks, run_list, tables
from holdfast.adapters.store.columns import encoded
from holdfast.adapters.store.prepared import Prepared
from holdfast.adapters.store.rows import Packed, Shape
from holdfast.core.callbacks import CallbackOutcome
from holdfast.core.lifecycle import HOLDING, Signal, advance, is_over
from holdfast.core.runs import Run, RunQuery, RunStatus
from holdfast.errors import NotFound, RunMoved

_runs = tables.runs
_requests = tables.run_requests

_ASKED = ("input", "request")
RUN = Shape(
    Run,
    _runs,
    apart=(*_ASKED, "callback"),
    kept=("metadata", "project_id", "base_template_id"),
)
_asked = Packed(Run, _ASKED)

_whole = select(*RUN.columns, _requests.c.body).join(_requests, _requests.c.run_id == _runs.c.id)
_add = Prepared(insert(_runs))
_add_asked = Prepared(insert(_requests))
_add_tool = Prepared(insert(tables.run_tools))
_this = _whole.where(_runs.c.id == bindparam("this_id"))
_find = Prepared(_this)
# SQLite has one writer anyway and leaves the last words out.
_hold = Prepared(_this.with_for_update(of=_runs))
# In the words of the index of waiting runs, of which a thread has one at most: see ``run_list``.
_is_paused = text(f"runs.status = '{RunStatus.PAUSED}'")
_paused_on = Prepared(_whole.where(_runs.c.thread_id == bindparam("thread"), _is_paused))
_of_request = _whole.where(
    _runs.c.thread_id == bindparam("thread"), _runs.c.request_key == bindparam("key")
)
_reserve = Prepared(
    update(_runs)
    .where(_runs.c.id == bindparam("this_id"))
    .values(reserved_seq=bindparam("reserved"))
)
_cancelling = select(_runs.c.id).where(run_list.IS_LIVE, _runs.c.status == RunStatus.CANCELLING)
_annotate = (
    update(_runs).where(_runs.c.id == bindparam("this_id")).values(metadata=bindparam("given"))
)
_as_seen = update(_runs).where(
    _runs.c.id == bindparam("this_id"), _runs.c.status == bindparam("seen")
)
_change = Prepared(_as_seen, columns=RUN.changing)
_other = _runs.alias("other")
# The unique index refuses a second holder too, but an error there ends the whole transaction.
_take_thread = Prepared(
    _as_seen.where(
        ~exists().where(
            _other.c.thread_id == _runs.c.thread_id,
            run_list.in_words(HOLDING, _other.name),
        )
    ),
    columns=RUN.changing,
)


class SqlRuns:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, run: Run) -> None:
        _add.run(self._connection, RUN.row(run))
        _add_asked.run(self._connection, {"run_id": run.id, "body": _asked.text(run)})
        self.note_tools(run.id, run.tools_used)

    def get(self, organization_id: str, run_id: str) -> Run:
        run = self.find(run_id)
        if run is None or run.organization_id != organization_id:
            raise _missing(run_id)
        return run

    def hold(self, organization_id: str, run_id: str) -> Run:
        row = _hold.row(self._connection, {"this_id": run_id})
        run = None if row is None else self._told(_run(row))
        if run is None or run.organization_id != organization_id:
            raise _missing(run_id)
        return run

    def find(self, run_id: str) -> Run | None:
        row = _find.row(self._connection, {"this_id": run_id})
        return None if row is None else self._told(_run(row))

    def change(self, run: Run, signal: Signal) -> Run:
        status = advance(run.status, signal)
        takes_thread = status in HOLDING and run.status not in HOLDING
        changed = msgspec.structs.replace(run, status=status)
        which = {"this_id": run.id, "seen": run.status}
        statement = _take_thread if takes_thread else _change
        if statement.run(self._connection, RUN.row(changed) | which) == 0:
            raise RunMoved(
                f"Run {run.id} does not take {signal}: it is no longer {run.status}, "
                "or another run holds its thread."
            )
        if is_over(status) and not is_over(run.status):
            callbacks.owe(self._connection, changed)
        return changed

    def save(self, run: Run) -> None:
        which = {"this_id": run.id, "seen": run.status}
        if _change.run(self._connection, RUN.row(run) | which) == 0:
            raise RunMoved(f"Run {run.id} is no longer {run.status}.")

    def remove(self, organization_id: str, run_id: str) -> None:
        gone = self._connection.execute(
            delete(_runs).where(_runs.c.id == run_id, _runs.c.organization_id == organization_id)
        )
        if gone.rowcount == 0:
            raise _missing(run_id)

    def reserve(self, run_id: str, seq: int) -> None:
        _reserve.run(self._connection, {"this_id": run_id, "reserved": seq})

    def withdraw(self, run_id: str) -> bool:
        gone = self._connection.execute(
            delete(_runs).where(_runs.c.id == run_id, _runs.c.status == RunStatus.QUEUED)
        )
        return gone.rowcount > 0

    def note_tools(self, run_id: str, tool_ids: Sequence[str]) -> None:
        _add_tool.run_each(
            self._connection, [{"run_id": run_id, "tool_id": tool_id} for tool_id in tool_ids]
        )

    def annotate(self, organization_id: str, run_id: str, metadata: Mapping[str, Any]) -> Run:
        run = self.hold(organization_id, run_id)
        run = msgspec.structs.replace(run, metadata={**run.metadata, **metadata})
        self._connection.execute(_annotate, {"this_id": run_id, "given": run.metadata})
        return run

    def list(self, organization_id: str, query: RunQuery) -> Sequence[Run]:
        ids = run_list.ids_on_page(self._connection, organization_id, query)
        rows = self._connection.execute(_whole.where(_runs.c.id.in_(ids))) if ids else ()
        found = {run.id: run for run in map(_run, rows)}
        waiting = [run_id for run_id in ids if _may_be_told(found[run_id])]
        told = callbacks.outcomes(self._connection, waiting)
        return [_with_callback(found[run_id], told) for run_id in ids]

    def _told(self, run: Run) -> Run:
        """The run with what has come of its callback: a look that most runs do not need."""
        if not _may_be_told(run):
            return run
        return _with_callback(run, callbacks.outcomes(self._connection, [run.id]))

    def live(self) -> Sequence[Run]:
        wanted = _whole.where(run_list.IS_LIVE).order_by(_runs.c.created_at, _runs.c.id)
        return [_run(row) for row in self._connection.execute(wanted)]

    def cancelling(self) -> Sequence[str]:
        return self._connection.execute(_cancelling).scalars().all()

    def paused_on(self, thread_id: str) -> Run | None:
        row = _paused_on.row(self._connection, {"thread": thread_id})
        return None if row is None else _run(row)

    def paused(self, thread_ids: Collection[str]) -> Mapping[str, str]:
        wanted = select(_runs.c.thread_id, _runs.c.id).where(
            _runs.c.thread_id.in_(thread_ids), _is_paused
        )
        return {row.thread_id: row.id for row in self._connection.execute(wanted)}

    def of_request(self, thread_id: str, request_key: str) -> Run | None:
        row = self._connection.execute(
            _of_request, {"thread": thread_id, "key": request_key}
        ).first()
        return None if row is None else _run(row)

    def with_otid(self, thread_id: str, otid: str) -> Run | None:
        # True of every run that was sent the otid, and of few others: those are looked at.
        wanted = _whole.where(
            _runs.c.thread_id == thread_id,
            _requests.c.body.contains(encoded(otid), autoescape=True),
        ).order_by(_runs.c.created_at.desc(), _runs.c.id.desc())
        found = map(_run, self._connection.execute(wanted).all())
        return next((run for run in found if otid in {row.otid for row in run.input}), None)


def _run(row: Sequence[Any]) -> Run:
    return RUN.value(row, **_asked.fields(row[-1]))


def _may_be_told(run: Run) -> bool:
    return run.request.callback_url is not None and is_over(run.status)


def _with_callback(run: Run, told: Mapping[str, CallbackOutcome]) -> Run:
    return msgspec.structs.replace(run, callback=told[run.id]) if run.id in told else run


def _missing(run_id: str) -> NotFound:
    return NotFound(f"Run with ID {run_id} not found")
