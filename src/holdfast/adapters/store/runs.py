"""Runs. Their status changes here alone, as compare-and-set by the table in ``core.lifecycle``.

Every write of a run carries its fence: if the run was claimed again since it was loaded, no row is written.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection, and_, bindparam, delete, exists, insert, select, text, update

from holdfast.adapters.store import callbacks, run_list, tables
from holdfast.adapters.store.columns import to_json
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import JsonBody, RowMapper
from holdfast.core.callbacks import CallbackOutcome
from holdfast.core.lifecycle import HOLDING, Signal, advance, is_over
from holdfast.core.runs import IdempotencyKey, Run, RunQuery, RunStatus
from holdfast.core.servers import Claimant
from holdfast.errors import NotFound, RunFenced, StaleRun

_runs = tables.runs
_requests = tables.run_requests
_keys = tables.idempotency_keys

_REQUEST_FIELDS = ("input", "request")
RUN = RowMapper(
    Run,
    _runs,
    stored_elsewhere=(*_REQUEST_FIELDS, "callback"),
    # Callers write the first, nobody the next two, and the queue the last.
    skipped_by_save=("metadata", "project_id", "base_template_id", "owner_id", "fence"),
)
_request_body = JsonBody(Run, _REQUEST_FIELDS)

_select_run = select(*RUN.columns, _requests.c.body).join(
    _requests, _requests.c.run_id == _runs.c.id
)
_insert = PreparedStatement(insert(_runs))
_insert_request = PreparedStatement(insert(_requests))
_insert_tool = PreparedStatement(insert(tables.run_tools))
_select_by_id = _select_run.where(_runs.c.id == bindparam("this_id"))
_select_one = PreparedStatement(_select_by_id)
# SQLite has one writer anyway, and its SQL has no FOR UPDATE.
_select_for_update = PreparedStatement(_select_by_id.with_for_update(of=_runs))
# Literal SQL, as in the partial index of paused runs: see ``run_list.status_condition``.
_is_paused = text(f"runs.status = '{RunStatus.PAUSED}'")
_select_paused = PreparedStatement(
    _select_run.where(_runs.c.thread_id == bindparam("thread"), _is_paused)
)
_select_by_request_key = _select_run.where(
    _runs.c.thread_id == bindparam("thread"), _runs.c.request_key == bindparam("key")
)
_insert_key = PreparedStatement(insert(_keys))
_select_by_key = (
    _select_run.add_columns(_keys.c.fingerprint)
    .join(_keys, _keys.c.run_id == _runs.c.id)
    .where(_keys.c.organization_id == bindparam("organization"), _keys.c.key == bindparam("given"))
)
_is_this_claim = and_(_runs.c.id == bindparam("this_id"), _runs.c.fence == bindparam("seen_fence"))
_update_reserved_seq = PreparedStatement(
    update(_runs).where(_is_this_claim).values(reserved_seq=bindparam("reserved"))
)
_has_stale_prompt = (
    exists().where(tables.stale_prompts.c.thread_id == _runs.c.thread_id).label("is_stale")
)
_lock_claim = PreparedStatement(
    select(_has_stale_prompt).select_from(_runs).where(_is_this_claim).with_for_update(of=_runs)
)
_select_fence = PreparedStatement(select(_runs.c.fence).where(_runs.c.id == bindparam("this_id")))
_select_cancelling = select(_runs.c.id).where(
    run_list.IS_LIVE, _runs.c.status == RunStatus.CANCELLING
)
_update_metadata = (
    update(_runs).where(_runs.c.id == bindparam("this_id")).values(metadata=bindparam("given"))
)
_update_if_status = update(_runs).where(_is_this_claim, _runs.c.status == bindparam("seen"))
_update = PreparedStatement(_update_if_status, columns=RUN.mutable_columns)
_other_runs = _runs.alias("other")
# The unique index refuses a second holder too, but that error would end the whole transaction.
_update_and_take_thread = PreparedStatement(
    _update_if_status.where(
        ~exists().where(
            _other_runs.c.thread_id == _runs.c.thread_id,
            run_list.status_condition(HOLDING, _other_runs.name),
        )
    ),
    columns=RUN.mutable_columns,
)


class RunPlaces(Protocol):
    """The queue, as far as it changes with the runs themselves."""

    def enter(self, run: Run, claimant: Claimant | None) -> Run: ...

    def lock(self, run_id: str) -> None: ...

    def leave(self, run: Run) -> None: ...


class SqlRuns:
    def __init__(self, connection: Connection, queue: RunPlaces) -> None:
        self._connection = connection
        self._queue = queue

    def add(self, run: Run, claimant: Claimant | None = None) -> Run:
        run = self._queue.enter(run, claimant)
        _insert.execute(self._connection, RUN.to_row(run))
        _insert_request.execute(
            self._connection, {"run_id": run.id, "body": _request_body.encode(run)}
        )
        self.record_tools(run.id, run.tools_used)
        return run

    def get(self, organization_id: str, run_id: str) -> Run:
        run = self.find(run_id)
        if run is None or run.organization_id != organization_id:
            raise _not_found(run_id)
        return run

    def get_for_update(self, organization_id: str, run_id: str) -> Run:
        self._queue.lock(run_id)
        row = _select_for_update.fetch_first(self._connection, {"this_id": run_id})
        run = None if row is None else self._load_callback(_from_row(row))
        if run is None or run.organization_id != organization_id:
            raise _not_found(run_id)
        return run

    def find(self, run_id: str) -> Run | None:
        row = _select_one.fetch_first(self._connection, {"this_id": run_id})
        return None if row is None else self._load_callback(_from_row(row))

    def transition(self, run: Run, signal: Signal) -> Run:
        status = advance(run.status, signal)
        takes_thread = status in HOLDING and run.status not in HOLDING
        changed = msgspec.structs.replace(run, status=status)
        statement = _update_and_take_thread if takes_thread else _update
        if statement.execute(self._connection, RUN.to_row(changed) | _claim_values(run)) == 0:
            self._refuse_earlier_claim(run)
            raise StaleRun(
                f"Run {run.id} does not take {signal}: it is no longer {run.status}, "
                "or another run holds its thread."
            )
        if is_over(status) and not is_over(run.status):
            self._queue.leave(changed)
            callbacks.add_due(self._connection, changed)
        return changed

    def save(self, run: Run) -> None:
        if _update.execute(self._connection, RUN.to_row(run) | _claim_values(run)) == 0:
            self._refuse_earlier_claim(run)
            raise StaleRun(f"Run {run.id} is no longer {run.status}.")

    def delete(self, organization_id: str, run_id: str) -> None:
        deleted = self._connection.execute(
            delete(_runs).where(_runs.c.id == run_id, _runs.c.organization_id == organization_id)
        )
        if deleted.rowcount == 0:
            raise _not_found(run_id)

    def reserve_seq(self, run: Run, seq: int) -> None:
        if (
            _update_reserved_seq.execute(self._connection, {**_claim_values(run), "reserved": seq})
            == 0
        ):
            self._refuse_earlier_claim(run)
            raise _not_found(run.id)

    def lock(self, run: Run) -> bool:
        found = _lock_claim.fetch_first(self._connection, _claim_values(run))
        if found is None:
            self._refuse_earlier_claim(run)
            raise _not_found(run.id)
        return bool(found[0])

    def delete_if_waiting(self, run_id: str) -> bool:
        self._queue.lock(run_id)
        deleted = self._connection.execute(
            delete(_runs).where(
                _runs.c.id == run_id,
                _runs.c.status == RunStatus.QUEUED,
                _runs.c.owner_id.is_(None),
            )
        )
        return deleted.rowcount > 0

    def _refuse_earlier_claim(self, run: Run) -> None:
        """Raise RunFenced if the run was claimed, or put back into the queue, since it was loaded."""
        stored = _select_fence.fetch_first(self._connection, {"this_id": run.id})
        if stored is not None and stored[0] != run.fence:
            raise RunFenced(run.id)

    def record_tools(self, run_id: str, tool_ids: Sequence[str]) -> None:
        _insert_tool.execute_many(
            self._connection, [{"run_id": run_id, "tool_id": tool_id} for tool_id in tool_ids]
        )

    def add_metadata(self, organization_id: str, run_id: str, metadata: Mapping[str, Any]) -> Run:
        run = self.get_for_update(organization_id, run_id)
        run = msgspec.structs.replace(run, metadata={**run.metadata, **metadata})
        self._connection.execute(_update_metadata, {"this_id": run_id, "given": run.metadata})
        return run

    def list(self, organization_id: str, query: RunQuery) -> Sequence[Run]:
        ids = run_list.ids_on_page(self._connection, organization_id, query)
        rows = self._connection.execute(_select_run.where(_runs.c.id.in_(ids))) if ids else ()
        found = {run.id: run for run in map(_from_row, rows)}
        called_back = [run_id for run_id in ids if _may_have_callback(found[run_id])]
        outcomes = callbacks.load_outcomes(self._connection, called_back)
        return [_with_callback(found[run_id], outcomes) for run_id in ids]

    def _load_callback(self, run: Run) -> Run:
        """Return the run with the outcome of its callback. Most runs have none and need no query."""
        if not _may_have_callback(run):
            return run
        return _with_callback(run, callbacks.load_outcomes(self._connection, [run.id]))

    def list_live(self) -> Sequence[Run]:
        selected = _select_run.where(run_list.IS_LIVE).order_by(_runs.c.created_at, _runs.c.id)
        return [_from_row(row) for row in self._connection.execute(selected)]

    def cancelling_ids(self) -> Sequence[str]:
        return self._connection.execute(_select_cancelling).scalars().all()

    def find_paused(self, thread_id: str) -> Run | None:
        row = _select_paused.fetch_first(self._connection, {"thread": thread_id})
        return None if row is None else _from_row(row)

    def paused_run_ids(self, thread_ids: Collection[str]) -> Mapping[str, str]:
        selected = select(_runs.c.thread_id, _runs.c.id).where(
            _runs.c.thread_id.in_(thread_ids), _is_paused
        )
        return {row.thread_id: row.id for row in self._connection.execute(selected)}

    def find_by_request_key(self, thread_id: str, request_key: str) -> Run | None:
        row = self._connection.execute(
            _select_by_request_key, {"thread": thread_id, "key": request_key}
        ).first()
        return None if row is None else _from_row(row)

    def add_key(self, run: Run, key: IdempotencyKey) -> None:
        row = {"organization_id": run.organization_id, "run_id": run.id}
        _insert_key.execute(self._connection, row | msgspec.structs.asdict(key))

    def find_by_key(self, organization_id: str, key: str) -> tuple[Run, str] | None:
        given = {"organization": organization_id, "given": key}
        row = self._connection.execute(_select_by_key, given).first()
        return None if row is None else (self._load_callback(_from_row(row[:-1])), row[-1])

    def find_by_otid(self, thread_id: str, otid: str) -> Run | None:
        # The condition is true of every run with the otid, and of few others, which are filtered out below.
        selected = _select_run.where(
            _runs.c.thread_id == thread_id,
            _requests.c.body.contains(to_json(otid), autoescape=True),
        ).order_by(_runs.c.created_at.desc(), _runs.c.id.desc())
        found = map(_from_row, self._connection.execute(selected).all())
        return next((run for run in found if otid in {row.otid for row in run.input}), None)


def _claim_values(run: Run) -> dict[str, Any]:
    return {"this_id": run.id, "seen": run.status, "seen_fence": run.fence}


def _from_row(row: Sequence[Any]) -> Run:
    return RUN.from_row(row, **_request_body.decode(row[-1]))


def _may_have_callback(run: Run) -> bool:
    return run.request.callback_url is not None and is_over(run.status)


def _with_callback(run: Run, outcomes: Mapping[str, CallbackOutcome]) -> Run:
    return msgspec.structs.replace(run, callback=outcomes[run.id]) if run.id in outcomes else run


def _not_found(run_id: str) -> NotFound:
    return NotFound(f"Run with ID {run_id} not found")
