"""Agents, tools, blocks and user providers, with their links and tags."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from holdfast.adapters.store.columns import EnumText, Instant
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.tools import ToolKind

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
    # Of a tool of an MCP server.
    Column("mcp_server_id", ForeignKey("mcp_servers.id", ondelete="CASCADE")),
    UniqueConstraint("organization_id", "name"),
    Index(None, "mcp_server_id", "name"),
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
    # Referenced by agent_blocks, so that a new label is copied to every agent.
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
    # Encrypted: see ``cipher``.
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
    # Encrypted: see ``cipher``.
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
