"""Steps with their tags and provider traces."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from holdfast.adapters.store.columns import EnumText, Instant, StringList
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.steps import StepStatus

steps = Table(
    "steps",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("status", EnumText(StepStatus), nullable=False),
    Column("model_handle", Text, nullable=False),
    Column("cost", BigInteger),
    # Written only by callers, while the engine writes the other columns.
    Column("feedback", Text),
    Column("tags", StringList, nullable=False),
    Column("transaction_id", Text),
    Column("project_id", Text),
    Column("trace_id", Text),
    Column("created_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    # Covers the query for an agent's costs.
    Index("ix_steps_agent", "agent_id", "created_at", "id", "organization_id", "status", "cost"),
    Index(None, "run_id", "created_at", "id"),
)

_has_trace = steps.c.trace_id.is_not(None)
Index("ix_steps_trace", steps.c.trace_id, sqlite_where=_has_trace, postgresql_where=_has_trace)

# As for runs. None of these columns changes while a step is in progress.
Index(
    "ix_steps_page",
    steps.c.organization_id,
    steps.c.created_at,
    steps.c.id,
    steps.c.model_handle,
    steps.c.feedback,
    steps.c.project_id,
    steps.c.agent_id,
)

step_tags = Table(
    "step_tags",
    metadata,
    Column("step_id", ForeignKey("steps.id", ondelete="CASCADE"), nullable=False),
    Column("tag", Text, nullable=False),
    PrimaryKeyConstraint("step_id", "tag"),
    Index(None, "tag"),
)

# Requests to model providers and their answers, if the operator wants them stored.
provider_traces = Table(
    "provider_traces",
    metadata,
    Column(
        "position",
        BigInteger().with_variant(Integer, "sqlite"),
        Identity(always=True),
        primary_key=True,
    ),
    Column("id", Text, nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("step_id", ForeignKey("steps.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "step_id"),
)
