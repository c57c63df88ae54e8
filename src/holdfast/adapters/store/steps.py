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
from holdfast.adapters.store.paging import Listing
from holdfast.adapters.store.prepared import Prepared
from holdfast.adapters.store.rows import Shape, refuse_nul
from holdfast.adapters.store.steering import walk_indexes
from holdfast.adapters.store.tagged import has_tags
from holdfast.core.prices import Costs
from holdfast.core.runs import Step, StepQuery, StepStatus
from holdfast.errors import NotFound

_steps = tables.steps
_tags = tables.step_tags

STEP = Shape(Step, _steps, kept=("feedback", "tags", "transaction_id"))

_listing = Listing(
    "Step",
    _steps.c.id,
    organization_id=_steps.c.organization_id,
    orders={"created_at": _steps.c.created_at},
)

# A step without an answer has nothing that a price is missing for.
_is_unpriced = and_(_steps.c.status == StepStatus.SUCCESS, _steps.c.cost.is_(None))

_add = Prepared(insert(_steps))
_add_tag = Prepared(insert(_tags))
_forget_tags = Prepared(delete(_tags).where(_tags.c.step_id == bindparam("this_id")))
_save = Prepared(update(_steps).where(_steps.c.id == bindparam("this_id")), columns=STEP.changing)


class SqlSteps:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, step: Step) -> None:
        _add.run(self._connection, _row(step))
        self._index_tags(step)

    def save(self, step: Step) -> None:
        if _save.run(self._connection, _row(step) | {"this_id": step.id}) == 0:
            raise _missing(step.id)

    def judge(
        self,
        organization_id: str,
        step_id: str,
        feedback: str | None,
        tags: tuple[str, ...] | None,
    ) -> Step:
        said: dict[str, object] = {"feedback": feedback}
        if tags is not None:
            said["tags"] = tags
        step = self._note(organization_id, step_id, said)
        if tags is not None:
            _forget_tags.run(self._connection, {"this_id": step_id})
            self._index_tags(step)
        return step

    def book(self, organization_id: str, step_id: str, transaction_id: str) -> Step:
        refuse_nul("transaction_id", transaction_id)
        return self._note(organization_id, step_id, {"transaction_id": transaction_id})

    def _note(self, organization_id: str, step_id: str, said: Mapping[str, object]) -> Step:
        noted = self._connection.execute(
            update(_steps)
            .where(_steps.c.id == step_id, _steps.c.organization_id == organization_id)
            .values(said)
        )
        if noted.rowcount == 0:
            raise _missing(step_id)
        return self.get(organization_id, step_id)

    def get(self, organization_id: str, step_id: str) -> Step:
        row = self._connection.execute(
            select(*STEP.columns).where(
                _steps.c.id == step_id, _steps.c.organization_id == organization_id
            )
        ).first()
        if row is None:
            raise _missing(step_id)
        return STEP.value(row)

    def list(self, organization_id: str, query: StepQuery) -> Sequence[Step]:
        # First which, by an index that has all that may be asked for; then only those are read.
        wanted = select(_steps.c.id).where(*_conditions(query))
        narrow = bool(query.agent_id or query.run_id or query.trace_ids)
        if not narrow:
            walk_indexes(self._connection)
        page = _listing.window(
            self._connection, wanted, organization_id, query.page, found_otherwise=narrow
        )
        ids = [row[0] for row in page]
        rows = self._connection.execute(select(*STEP.columns).where(_steps.c.id.in_(ids)))
        found = {step.id: step for step in map(STEP.value, rows)}
        return [found[step_id] for step_id in ids]

    def pending(self, run_id: str) -> Sequence[Step]:
        rows = self._connection.execute(
            select(*STEP.columns)
            .where(_steps.c.run_id == run_id, _steps.c.status == StepStatus.PENDING)
            .order_by(_steps.c.created_at, _steps.c.id)
        )
        return [STEP.value(row) for row in rows]

    def costs(self, organization_id: str, query: StepQuery) -> Costs:
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
        _add_tag.run_each(self._connection, rows)


def _row(step: Step) -> dict[str, object]:
    return STEP.row(step) | {"model_handle": step.model.handle}


def _missing(step_id: str) -> NotFound:
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
        # Callers know a model by its handle or by its bare name.
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
