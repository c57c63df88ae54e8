"""Archives, passages, and vectors. The index of the words of passages and messages is in ``search_schema``."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
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
    # The handle of the model of its vectors: a search looks them up for many at once.
    Column("embedding", Text),
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

# The texts that are searched: those of archives, and the parts of files.
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
    # Either an archive, or a file and its folder.
    Column("archive_id", ForeignKey("archives.id", ondelete="CASCADE")),
    Column("folder_id", ForeignKey("folders.id", ondelete="CASCADE")),
    Column("file_id", ForeignKey("files.id", ondelete="CASCADE")),
    Column("created_at", Instant, nullable=False),
    # No foreign key: passages stay when their run is deleted.
    Column("run_id", Text),
    # The same for texts that count as the same; only for those of archives.
    Column("fingerprint", LargeBinary),
    Column("text", Text, nullable=False),
    Column("body", Text, nullable=False),
    CheckConstraint(
        "(archive_id IS NULL) = (folder_id IS NOT NULL) AND (folder_id IS NULL) = (file_id IS NULL)",
        name="ck_passages_container",
    ),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "archive_id", "created_at", "id"),
    Index(None, "archive_id", "fingerprint"),
    Index(None, "folder_id", "position"),
    Index(None, "file_id", "position"),
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


def _vectors(name: str, text_table: str) -> Table:
    return Table(
        name,
        metadata,
        # A later vector has a higher number, whatever its text is: a reader asks for those that are new to it.
        Column(
            "number",
            BigInteger().with_variant(Integer, "sqlite"),
            Identity(always=True),
            primary_key=True,
        ),
        Column(
            "position", ForeignKey(f"{text_table}.position", ondelete="CASCADE"), nullable=False
        ),
        # The archive or folder of a passage, the agent of a message.
        Column("container_id", Text, nullable=False),
        # The handle of the model. Only vectors of one model and one length can be compared.
        Column("model", Text, nullable=False),
        Column("dimensions", Integer, nullable=False),
        # Numbers of four bytes each.
        Column("vector", LargeBinary, nullable=False),
        UniqueConstraint("position", "model"),
        Index(None, "container_id", "model", "number"),
        sqlite_autoincrement=True,
    )


def _to_embed(name: str, text_table: str) -> Table:
    return Table(
        name,
        metadata,
        Column(
            "position", ForeignKey(f"{text_table}.position", ondelete="CASCADE"), nullable=False
        ),
        Column("model", Text, nullable=False),
        Column("container_id", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        # When the next attempt may begin; NULL: no more.
        Column("due_at", Instant),
        # Why the last attempt failed.
        Column("error", Text),
        PrimaryKeyConstraint("position", "model"),
        Index(None, "due_at"),
        Index(None, "container_id", "model"),
    )


passage_vectors = _vectors("passage_vectors", "passages")
message_vectors = _vectors("message_vectors", "messages")
# Texts whose vectors are still to be made.
passages_to_embed = _to_embed("passages_to_embed", "passages")
messages_to_embed = _to_embed("messages_to_embed", "messages")
