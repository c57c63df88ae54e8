"""Steps of runs."""

from collections.abc import Mapping, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.index_hints import prefer_indexes
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper, refuse_nul
from holdfast.adapters.store.tag_filter import has_tags
from holdfast.core.prices import Costs
from holdfast.core.steps import Step, StepQuery, StepStatus
from holdfast.errors import NotFound

_steps = tables.steps
_tags = tables.step_tags

STEP = RowMapper(Step, _steps, skipped_by_save=("feedback", "tags", "transaction_id"))

_paged_list = PagedList(
    "Step",
    _steps.c.id,
    organization_id=_steps.c.organization_id,
    orders={"created_at": _steps.c.created_at},
)

# Only a step with an answer can lack a price.
_is_unpriced = and_(_steps.c.status == StepStatus.SUCCESS, _steps.c.cost.is_(None))

_insert = PreparedStatement(insert(_steps))
_insert_tag = PreparedStatement(insert(_tags))
_delete_tags = PreparedStatement(delete(_tags).where(_tags.c.step_id == bindparam("this_id")))
_update = PreparedStatement(
    update(_steps).where(_steps.c.id == bindparam("this_id")), columns=STEP.mutable_columns
)


class SqlSteps:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, step: Step) -> None:
        _insert.execute(self._connection, _to_row(step))
        self._index_tags(step)

    def save(self, step: Step) -> None:
        if _update.execute(self._connection, _to_row(step) | {"this_id": step.id}) == 0:
            raise _not_found(step.id)

    def set_feedback(
        self,
        organization_id: str,
        step_id: str,
        feedback: str | None,
        tags: tuple[str, ...] | None,
    ) -> Step:
        values: dict[str, object] = {"feedback": feedback}
        if tags is not None:
            values["tags"] = tags
        step = self._update_columns(organization_id, step_id, values)
        if tags is not None:
            _delete_tags.execute(self._connection, {"this_id": step_id})
            self._index_tags(step)
        return step

    def set_transaction_id(self, organization_id: str, step_id: str, transaction_id: str) -> Step:
        refuse_nul("transaction_id", transaction_id)
        return self._update_columns(organization_id, step_id, {"transaction_id": transaction_id})

    def _update_columns(
        self, organization_id: str, step_id: str, values: Mapping[str, object]
    ) -> Step:
        updated = self._connection.execute(
            update(_steps)
            .where(_steps.c.id == step_id, _steps.c.organization_id == organization_id)
            .values(values)
        )
        if updated.rowcount == 0:
            raise _not_found(step_id)
        return self.get(organization_id, step_id)

    def get(self, organization_id: str, step_id: str) -> Step:
        row = self._connection.execute(
            select(*STEP.columns).where(
                _steps.c.id == step_id, _steps.c.organization_id == organization_id
            )
        ).first()
        if row is None:
            raise _not_found(step_id)
        return STEP.from_row(row)

    def list(self, organization_id: str, query: StepQuery) -> Sequence[Step]:
        # The page is selected by an index that covers all filters; then only its own rows are read.
        selected = select(_steps.c.id).where(*_conditions(query))
        narrow = bool(query.agent_id or query.run_id or query.trace_ids)
        if not narrow:
            prefer_indexes(self._connection)
        page = _paged_list.select_page(
            self._connection, selected, organization_id, query.page, has_narrower_condition=narrow
        )
        ids = [row[0] for row in page]
        rows = self._connection.execute(select(*STEP.columns).where(_steps.c.id.in_(ids)))
        found = {step.id: step for step in map(STEP.from_row, rows)}
        return [found[step_id] for step_id in ids]

    def list_pending(self, run_id: str) -> Sequence[Step]:
        rows = self._connection.execute(
            select(*STEP.columns)
            .where(_steps.c.run_id == run_id, _steps.c.status == StepStatus.PENDING)
            .order_by(_steps.c.created_at, _steps.c.id)
        )
        return [STEP.from_row(row) for row in rows]

    def sum_costs(self, organization_id: str, query: StepQuery) -> Costs:
        row = self._connection.execute(
            select(func.sum(_steps.c.cost), func.count(), func.count().filter(_is_unpriced)).where(
                _steps.c.organization_id == organization_id, *_conditions(query)
            )
        ).one()
        total, steps, unpriced = row
        return Costs(cost=None if total is None else int(total), steps=steps, unpriced=unpriced)

    def _index_tags(self, step: Step) -> None:
        for tag in step.tags:
            refuse_nul("tags", tag)
        rows = [{"step_id": step.id, "tag": tag} for tag in sorted(set(step.tags))]
        _insert_tag.execute_many(self._connection, rows)


def _to_row(step: Step) -> dict[str, object]:
    return STEP.to_row(step) | {"model_handle": step.model.handle}


def _not_found(step_id: str) -> NotFound:
    return NotFound(f"Step with ID {step_id} not found")


def _conditions(query: StepQuery) -> list[ColumnElement[bool]]:
    exact = {
        _steps.c.agent_id: query.agent_id,
        _steps.c.run_id: query.run_id,
        _steps.c.feedback: query.feedback,
        _steps.c.project_id: query.project_id,
    }
    conditions = [column == value for column, value in exact.items() if value is not None]
    if query.model is not None:
        handle = _steps.c.model_handle
        # Callers name a model by its handle or by its name alone.
        conditions.append(
            or_(handle == query.model, handle.endswith(f"/{query.model}", autoescape=True))
        )
    if query.start_date is not None:
        conditions.append(_steps.c.created_at >= query.start_date)
    if query.end_date is not None:
        conditions.append(_steps.c.created_at <= query.end_date)
    if query.has_feedback is not None:
        unset = _steps.c.feedback.is_(None)
        conditions.append(~unset if query.has_feedback else unset)
    if query.trace_ids:
        conditions.append(_steps.c.trace_id.in_(query.trace_ids))
    if query.tags:
        conditions.append(has_tags(_steps.c.id, _tags.c.step_id, query.tags, every=False))
    return conditions
