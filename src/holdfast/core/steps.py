"""Steps: one model call each, with the tool calls of its answer."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.core.models import ModelChoice
from holdfast.core.paging import Page
from holdfast.core.runs import RunFailure, StopReason, Usage


class StepStatus(StrEnum):
    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed attempt to get an answer from the model, with the provider's error."""

    number: int
    kind: str
    at: datetime
    detail: str = ""
    # The wait before the next attempt; None if there is no next one.
    wait_seconds: float | None = None


# The origin of a step that wrote the summary of a compaction.
COMPACTION = "compaction"


class Step(Struct, frozen=True, kw_only=True):
    """One model call and the tool calls of its answer."""

    id: str
    organization_id: str
    agent_id: str
    run_id: str
    model: ModelChoice
    created_at: datetime
    status: StepStatus = StepStatus.PENDING
    origin: str | None = None
    usage: Usage = Usage()
    # In billionths of a US dollar; None if not known.
    cost: int | None = None
    stop_reason: StopReason | None = None
    failure: RunFailure | None = None
    attempts: tuple[Attempt, ...] = ()
    feedback: str | None = None
    tags: tuple[str, ...] = ()
    # A caller's id of the transaction in which this step was billed.
    transaction_id: str | None = None
    project_id: str | None = None
    llm_request_ns: int | None = None
    tool_execution_ns: int | None = None
    step_ns: int | None = None
    # The trace of the run's request, if it was traced.
    trace_id: str | None = None


class StepQuery(Struct, frozen=True, kw_only=True):
    page: Page
    agent_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    feedback: str | None = None
    has_feedback: bool | None = None
    tags: tuple[str, ...] = ()
    project_id: str | None = None
    trace_ids: tuple[str, ...] = ()
