"""Runs with their indexes, requests, idempotency keys, callbacks, tools and events."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    and_,
)

from holdfast.adapters.store.columns import EnumText, Instant, Json
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.lifecycle import HOLDING, LIVE, UNSUCCESSFUL
from holdfast.core.runs import RunStatus, StopReason

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
    # The approval request that the run waits for while it is paused.
    Column("approval_id", Text),
    Column("asked_at", Instant),
    Column("expires_at", Instant),
    # Raised while the run streams, without writing the other columns.
    Column("reserved_seq", BigInteger, nullable=False),
    # Written only by callers, while the engine writes the other columns.
    Column("metadata", Json, nullable=False),
    Column("body", Text, nullable=False),
    # The server that has claimed the run. No foreign key: a run keeps the id of a server that is long gone.
    Column("owner_id", Text),
    Column("fence", BigInteger, nullable=False, server_default="0"),
)

# Every column that a list of runs can be filtered by is in the indexes that it can be sorted by. So a query scans one
# index at most and reads only the rows of its page (``run_list``).
_FILTER_COLUMNS = (
    runs.c.status,
    runs.c.stop_reason,
    runs.c.background,
    runs.c.project_id,
    runs.c.base_template_id,
    runs.c.num_steps,
)

_has_duration = runs.c.total_duration_ns.is_not(None)
_is_unsuccessful = runs.c.status.in_(sorted(UNSUCCESSFUL))

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

# Unsuccessful runs are few and often queried.
Index(
    "ix_runs_went_wrong",
    runs.c.created_at,
    runs.c.id,
    *_FILTER_COLUMNS,
    runs.c.total_duration_ns,
    runs.c.agent_id,
    runs.c.organization_id,
    sqlite_where=_is_unsuccessful,
    postgresql_where=_is_unsuccessful,
)

# At most one run holds a thread.
_holds_thread = runs.c.status.in_(sorted(HOLDING))
Index(
    "uq_runs_holder",
    runs.c.thread_id,
    unique=True,
    sqlite_where=_holds_thread,
    postgresql_where=_holds_thread,
)

# At most one run per request.
_has_key = runs.c.request_key.is_not(None)
Index(
    "uq_runs_request",
    runs.c.thread_id,
    runs.c.request_key,
    unique=True,
    sqlite_where=_has_key,
    postgresql_where=_has_key,
)

# At most one run per thread waits for a person.
_is_paused = runs.c.status == RunStatus.PAUSED
Index(
    "uq_runs_paused",
    runs.c.thread_id,
    runs.c.organization_id,
    unique=True,
    sqlite_where=_is_paused,
    postgresql_where=_is_paused,
)

# The list of approval requests and its cursors.
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
# Which live runs are before another one in its thread.
Index("ix_runs_live_thread", runs.c.thread_id, sqlite_where=_is_live, postgresql_where=_is_live)

# The request is in a separate table: it may contain pictures, and the run is rewritten at every step.
run_requests = Table(
    "run_requests",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("body", Text, nullable=False),
)

# The keys that senders gave to their requests. Each belongs to one run, and is deleted with it.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("organization_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    # A hash of the request that came with the key.
    Column("fingerprint", Text, nullable=False),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("organization_id", "key"),
    Index(None, "run_id"),
)

# Callbacks that are due or were attempted, one per run that has a callback URL.
callbacks = Table(
    "callbacks",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("host", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # When it may be attempted next; NULL: never. A claim moves this time, so that the callback of a process that
    # died is attempted later.
    Column("due_at", Instant),
    Column("sent_at", Instant),
    Column("status_code", Integer),
    Column("error", Text),
)

_is_due = callbacks.c.due_at.is_not(None)
# Covers the query for due callbacks: many may be due for a host that hangs, and all of those are skipped.
Index(
    "ix_callbacks_due",
    callbacks.c.due_at,
    callbacks.c.run_id,
    callbacks.c.host,
    callbacks.c.attempts,
    sqlite_where=_is_due,
    postgresql_where=_is_due,
)

# No foreign key to the tools: a run keeps its tools when a tool is deleted.
run_tools = Table(
    "run_tools",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("tool_id", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "tool_id"),
    Index(None, "tool_id", "run_id"),
)

events = Table(
    "events",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    # A row may hold several events: ``seq`` is the first, ``last_seq`` the last.
    Column("seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    # An event of a stored message has only its id; the content is in ``messages``.
    Column("message_id", Text),
    Column("body", Text),
    PrimaryKeyConstraint("run_id", "seq"),
)
