"""Threads, their messages and contexts, and open tool calls."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from holdfast.adapters.store.columns import EnumText, Instant
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.deadlines import OnTimeout
from holdfast.core.messages import CallState, Role

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
    # The thread is deleted, but a fork still shares messages of it.
    Column("deleted_at", Instant),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "agent_id", "created_at", "id"),
)

messages = Table(
    "messages",
    metadata,
    # Positions are never reused: a context is sorted by them long after messages are deleted.
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
    # No foreign keys: messages stay when their run is deleted.
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

# The messages of other threads that are part of a fork's history, in its context or not.
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
    # The deadline for an answer, and what happens to the call then.
    Column("expires_at", Instant),
    Column("on_timeout", EnumText(OnTimeout)),
    PrimaryKeyConstraint("thread_id", "call_id"),
)
