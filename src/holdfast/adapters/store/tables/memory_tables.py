"""Archives and their passages. The index of their words is in ``search_schema``."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from holdfast.adapters.store.columns import Instant
from holdfast.adapters.store.tables.schema import metadata

archives = Table(
    "archives",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
)

agent_archives = Table(
    "agent_archives",
    metadata,
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("archive_id", ForeignKey("archives.id", ondelete="CASCADE"), nullable=False),
    Column("attached_at", Instant, nullable=False),
    # Whether the first insert of the agent has created the archive.
    Column("is_owner", Boolean, nullable=False),
    PrimaryKeyConstraint("agent_id", "archive_id"),
    Index(None, "archive_id"),
    # Two first inserts at the same moment must not create two archives.
    Index(
        "uq_agent_archives_owner",
        "agent_id",
        unique=True,
        sqlite_where=text("is_owner"),
        postgresql_where=text("is_owner"),
    ),
)

passages = Table(
    "passages",
    metadata,
    # Positions are never reused: a row of the index of words may outlive its passage for a moment.
    Column(
        "position",
        BigInteger().with_variant(Integer, "sqlite"),
        Identity(always=True),
        primary_key=True,
    ),
    Column("id", Text, nullable=False, unique=True),
    Column("organization_id", Text, nullable=False),
    Column("archive_id", ForeignKey("archives.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Instant, nullable=False),
    # No foreign key: passages stay when their run is deleted.
    Column("run_id", Text),
    # The same for texts that count as the same.
    Column("fingerprint", LargeBinary, nullable=False),
    Column("text", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "archive_id", "created_at", "id"),
    Index(None, "archive_id", "fingerprint"),
    Index(None, "run_id"),
    sqlite_autoincrement=True,
)

passage_tags = Table(
    "passage_tags",
    metadata,
    Column("passage_id", ForeignKey("passages.id", ondelete="CASCADE"), nullable=False),
    Column("archive_id", ForeignKey("archives.id", ondelete="CASCADE"), nullable=False),
    Column("tag", Text, nullable=False),
    PrimaryKeyConstraint("passage_id", "tag"),
    Index(None, "archive_id", "tag"),
)
