"""MCP servers and the OAuth sessions with them."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text, UniqueConstraint

from holdfast.adapters.store.columns import EnumText, Instant
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.mcp_sessions import SessionStatus

mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    # Encrypted: see ``cipher``.
    Column("encrypted_secrets", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("organization_id", "name"),
)

mcp_sessions = Table(
    "mcp_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("server_id", ForeignKey("mcp_servers.id", ondelete="CASCADE")),
    # SHA-256: the URL may have a key in it.
    Column("url_hash", Text, nullable=False),
    Column("status", EnumText(SessionStatus), nullable=False),
    Column("state", Text),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("refresh_ends_at", Instant),
    # Encrypted: see ``cipher``.
    Column("encrypted_secrets", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("state"),
    Index(None, "organization_id", "user_id", "url_hash", "updated_at"),
    Index(None, "server_id"),
)
