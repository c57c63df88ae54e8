"""Identities, and their links with agents and blocks."""

from sqlalchemy import Column, ForeignKey, Index, PrimaryKeyConstraint, Table, Text, text

from holdfast.adapters.store.columns import EnumText, Instant
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.identities import IdentityType

identities = Table(
    "identities",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("identifier_key", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("identity_type", EnumText(IdentityType), nullable=False),
    Column("project_id", Text),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    # Two indexes, because to an index two NULLs are different projects.
    Index(
        "uq_identities_key_in_project",
        "organization_id",
        "identifier_key",
        "project_id",
        unique=True,
    ),
    Index(
        "uq_identities_key_without_project",
        "organization_id",
        "identifier_key",
        unique=True,
        sqlite_where=text("project_id IS NULL"),
        postgresql_where=text("project_id IS NULL"),
    ),
)


def _links(name: str, holder_id: str, holder_table: str) -> Table:
    return Table(
        name,
        metadata,
        Column("identity_id", ForeignKey("identities.id", ondelete="CASCADE"), nullable=False),
        Column(holder_id, ForeignKey(f"{holder_table}.id", ondelete="CASCADE"), nullable=False),
        Column("attached_at", Instant, nullable=False),
        PrimaryKeyConstraint("identity_id", holder_id),
        Index(None, holder_id),
    )


identities_agents = _links("identities_agents", "agent_id", "agents")
identities_blocks = _links("identities_blocks", "block_id", "blocks")
