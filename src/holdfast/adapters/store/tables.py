"""The tables as they are now. How they came to be is in ``migrations``; a test compares the two.

A column exists where something is filtered, sorted or joined by it; the rest of a value is its ``body``.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    and_,
)

from holdfast.adapters.store.columns import EnumText, Instant, Json, StringList
from holdfast.core.deadlines import OnTimeout
from holdfast.core.lifecycle import HOLDING, LIVE, UNSUCCESSFUL
from holdfast.core.messages import CallState, Role
from holdfast.core.runs import RunStatus, StopReason
from holdfast.core.steps import StepStatus
from holdfast.core.tools import ToolKind

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("hidden", Boolean),
    Column("project_id", Text),
    Column("template_id", Text),
    Column("base_template_id", Text),
    Column("created_by_id", Text),
    Column("last_stop_reason", Text),
    Column("last_run_completion", Instant),
    Column("last_run_duration_ms", BigInteger),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
)

tools = Table(
    "tools",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", EnumText(ToolKind), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("organization_id", "name"),
)

blocks = Table(
    "blocks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("description", Text),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("is_template", Boolean, nullable=False),
    Column("template_name", Text),
    Column("project_id", Text),
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE")),
    Column("body", Text, nullable=False),
    # What agent_blocks points at, so that a new label reaches every holder.
    UniqueConstraint("id", "label"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "thread_id"),
)

providers = Table(
    "providers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("provider_type", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    # Secret text: see ``cipher``.
    Column("encrypted_keys", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("organization_id", "name"),
)

agent_tags = Table(
    "agent_tags",
    metadata,
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("tag", Text, nullable=False),
    PrimaryKeyConstraint("agent_id", "tag"),
    Index(None, "tag"),
)

agent_tools = Table(
    "agent_tools",
    metadata,
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("tool_id", ForeignKey("tools.id", ondelete="CASCADE"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    PrimaryKeyConstraint("agent_id", "tool_id"),
    Index(None, "tool_id"),
)

agent_blocks = Table(
    "agent_blocks",
    metadata,
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("block_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    PrimaryKeyConstraint("agent_id", "block_id"),
    UniqueConstraint("agent_id", "label"),
    ForeignKeyConstraint(
        ["block_id", "label"], ["blocks.id", "blocks.label"], onupdate="CASCADE", ondelete="CASCADE"
    ),
    Index(None, "block_id", "label"),
)

agent_secrets = Table(
    "agent_secrets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    # Secret text: see ``cipher``.
    Column("encrypted_value", Text, nullable=False),
    Column("description", Text),
    UniqueConstraint("agent_id", "key"),
)

block_tags = Table(
    "block_tags",
    metadata,
    Column("block_id", ForeignKey("blocks.id", ondelete="CASCADE"), nullable=False),
    Column("tag", Text, nullable=False),
    PrimaryKeyConstraint("block_id", "tag"),
    Index(None, "tag"),
)

threads = Table(
    "threads",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("summary", Text),
    Column("hidden", Boolean),
    Column("archived_at", Instant),
    Column("last_message_at", Instant),
    # The thread itself is gone, but a fork still shows messages of it.
    Column("deleted_at", Instant),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "agent_id", "created_at", "id"),
)

messages = Table(
    "messages",
    metadata,
    # Positions are never used twice: a context sorts by them long after rows are gone.
    Column(
        "position",
        BigInteger().with_variant(Integer, "sqlite"),
        Identity(always=True),
        primary_key=True,
    ),
    Column("id", Text, nullable=False, unique=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("role", EnumText(Role), nullable=False),
    # No foreign keys: rows outlive a run that is removed.
    Column("run_id", Text),
    Column("step_id", Text),
    Column("created_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "position"),
    Index(None, "agent_id", "position"),
    Index(None, "thread_id", "position"),
    Index(None, "run_id"),
    Index(None, "step_id"),
    sqlite_autoincrement=True,
)

context = Table(
    "context",
    metadata,
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("message_id", ForeignKey("messages.id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("thread_id", "place"),
    Index(None, "message_id"),
)

# The messages of other threads that are part of a fork's history, whatever its context shows.
shared = Table(
    "shared",
    metadata,
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("message_id", ForeignKey("messages.id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("thread_id", "message_id"),
    Index(None, "message_id"),
)

calls = Table(
    "calls",
    metadata,
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("call_id", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("step_id", Text, nullable=False),
    Column("state", EnumText(CallState), nullable=False),
    Column("call", Text, nullable=False),
    Column("result", Text),
    # Until when it waits for an answer, and what becomes of it then.
    Column("expires_at", Instant),
    Column("on_timeout", EnumText(OnTimeout)),
    PrimaryKeyConstraint("thread_id", "call_id"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("status", EnumText(RunStatus), nullable=False),
    Column("stop_reason", EnumText(StopReason)),
    Column("background", Boolean, nullable=False),
    Column("request_key", Text),
    Column("created_at", Instant, nullable=False),
    Column("completed_at", Instant),
    Column("total_duration_ns", BigInteger),
    Column("num_steps", Integer, nullable=False),
    Column("project_id", Text),
    Column("base_template_id", Text),
    # What a person is asked, while the run is paused.
    Column("approval_id", Text),
    Column("asked_at", Instant),
    Column("expires_at", Instant),
    # Raised while the run streams, without touching the rest.
    Column("reserved_seq", BigInteger, nullable=False),
    # Written by callers alone, while the engine writes the rest.
    Column("metadata", Json, nullable=False),
    Column("body", Text, nullable=False),
)

# What a list of runs may ask for stands in the indexes that it is sorted by: whatever is asked, at most one of
# them is walked, and only the rows of the page are read (``run_list``).
_FILTER_COLUMNS = (
    runs.c.status,
    runs.c.stop_reason,
    runs.c.background,
    runs.c.project_id,
    runs.c.base_template_id,
    runs.c.num_steps,
)
_has_duration = runs.c.total_duration_ns.is_not(None)
_went_wrong = runs.c.status.in_(sorted(UNSUCCESSFUL))
Index(
    "ix_runs_page",
    runs.c.organization_id,
    runs.c.created_at,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.total_duration_ns,
    runs.c.agent_id,
)
Index(
    "ix_runs_agent",
    runs.c.agent_id,
    runs.c.created_at,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.total_duration_ns,
    runs.c.organization_id,
)
Index(
    "ix_runs_thread",
    runs.c.thread_id,
    runs.c.created_at,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.total_duration_ns,
    runs.c.agent_id,
    runs.c.organization_id,
)
Index(
    "ix_runs_thread_duration",
    runs.c.thread_id,
    runs.c.total_duration_ns,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.created_at,
    runs.c.agent_id,
    runs.c.organization_id,
    sqlite_where=_has_duration,
    postgresql_where=_has_duration,
)
Index(
    "ix_runs_duration",
    runs.c.organization_id,
    runs.c.total_duration_ns,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.created_at,
    runs.c.agent_id,
    sqlite_where=_has_duration,
    postgresql_where=_has_duration,
)
# Few, and often looked for.
Index(
    "ix_runs_went_wrong",
    runs.c.created_at,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.total_duration_ns,
    runs.c.agent_id,
    runs.c.organization_id,
    sqlite_where=_went_wrong,
    postgresql_where=_went_wrong,
)

# Two runs that hold one thread cannot be written.
_holds_thread = runs.c.status.in_(sorted(HOLDING))
one_holder_per_thread = Index(
    "uq_runs_holder",
    runs.c.thread_id,
    unique=True,
    sqlite_where=_holds_thread,
    postgresql_where=_holds_thread,
)
# Nor two runs of one request.
_has_key = runs.c.request_key.is_not(None)
Index(
    "uq_runs_request",
    runs.c.thread_id,
    runs.c.request_key,
    unique=True,
    sqlite_where=_has_key,
    postgresql_where=_has_key,
)
# Nor two that wait for a person on one thread.
_is_paused = runs.c.status == RunStatus.PAUSED
Index(
    "uq_runs_paused",
    runs.c.thread_id,
    runs.c.organization_id,
    unique=True,
    sqlite_where=_is_paused,
    postgresql_where=_is_paused,
)
# The inbox, and a cursor into it.
Index(
    "ix_runs_asked",
    runs.c.organization_id,
    runs.c.asked_at,
    runs.c.approval_id,
    runs.c.agent_id,
    runs.c.expires_at,
    sqlite_where=_is_paused,
    postgresql_where=_is_paused,
)
_is_paused_with_deadline = and_(_is_paused, runs.c.expires_at.is_not(None))
Index(
    "ix_runs_deadlines",
    runs.c.expires_at,
    sqlite_where=_is_paused_with_deadline,
    postgresql_where=_is_paused_with_deadline,
)
_has_approval = runs.c.approval_id.is_not(None)
Index(None, runs.c.approval_id, sqlite_where=_has_approval, postgresql_where=_has_approval)
_is_live = runs.c.status.in_(sorted(LIVE))
Index("ix_runs_live", runs.c.created_at, sqlite_where=_is_live, postgresql_where=_is_live)

# What was asked stands apart: it may hold pictures, and a run is written at every step.
run_requests = Table(
    "run_requests",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("body", Text, nullable=False),
)

# Who is to be told that a run has ended, and what has come of it.
callbacks = Table(
    "callbacks",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("host", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # When it may be tried (again). A claim moves it, so that one whose process died is tried later; none: it is settled.
    Column("due_at", Instant),
    Column("sent_at", Instant),
    Column("status_code", Integer),
    Column("error", Text),
)
_is_due = callbacks.c.due_at.is_not(None)
# With all that is asked before one is taken: many may be due for a host that hangs, and are passed over.
Index(
    "ix_callbacks_due",
    callbacks.c.due_at,
    callbacks.c.run_id,
    callbacks.c.host,
    callbacks.c.attempts,
    sqlite_where=_is_due,
    postgresql_where=_is_due,
)

# No foreign key to the tools: what was called stays true when a tool is gone.
run_tools = Table(
    "run_tools",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("tool_id", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "tool_id"),
    Index(None, "tool_id", "run_id"),
)

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
    # Written by callers alone, while the engine writes the rest.
    Column("feedback", Text),
    Column("tags", StringList, nullable=False),
    Column("transaction_id", Text),
    Column("project_id", Text),
    Column("trace_id", Text),
    Column("created_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    # With all that an agent's cost is made of.
    Index("ix_steps_agent", "agent_id", "created_at", "id", "organization_id", "status", "cost"),
    Index(None, "run_id", "created_at", "id"),
)

_has_trace = steps.c.trace_id.is_not(None)
Index("ix_steps_trace", steps.c.trace_id, sqlite_where=_has_trace, postgresql_where=_has_trace)

# As for runs; none of these changes while a step is taken.
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

# What providers were sent and answered; only where it is asked for.
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

events = Table(
    "events",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    # A row may hold several events: ``seq`` is the first, ``last_seq`` the last.
    Column("seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    # Of a stored message only the id: the row itself is in ``messages``.
    Column("message_id", Text),
    Column("body", Text),
    PrimaryKeyConstraint("run_id", "seq"),
)
