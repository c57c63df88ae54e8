"""Folders, their files, what is in the files, and which of them agents have open."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from holdfast.adapters.store.columns import EnumText, Instant
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.files import ContentStatus, FileStatus

folders = Table(
    "folders",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    # The handle of the model of its vectors: a search looks them up for many at once.
    Column("embedding", Text),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    # Nobody sees it any more. Its rows are removed in parts, because there may be many.
    Column("deleted_at", Instant),
    Column("body", Text, nullable=False),
    Index(
        "uq_folders_name",
        "organization_id",
        "name",
        unique=True,
        sqlite_where=text("deleted_at IS NULL"),
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index(None, "organization_id", "created_at", "id"),
    Index(
        "ix_folders_deleted",
        "deleted_at",
        sqlite_where=text("deleted_at IS NOT NULL"),
        postgresql_where=text("deleted_at IS NOT NULL"),
    ),
)

# The bytes of files and the text in them. Files with the same bytes share one row.
contents = Table(
    "contents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    # SHA-256 of the bytes; NULL while they are received.
    Column("digest", Text),
    # How the text is extracted: the same bytes may be read as HTML or as plain text.
    Column("format", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("status", EnumText(ContentStatus), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("organization_id", "digest", "format"),
    # Those that are being received, and those to be removed.
    Index(
        "ix_contents_incomplete",
        "created_at",
        sqlite_where=text("status IN ('receiving', 'deleted')"),
        postgresql_where=text("status IN ('receiving', 'deleted')"),
    ),
)

# In parts, so that no transaction writes a large file at once.
content_bytes = Table(
    "content_bytes",
    metadata,
    Column("content_id", ForeignKey("contents.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("content_id", "number"),
)

# In parts that begin at a line, so that a window of lines can be read alone. Only a line that is longer than a part goes on
# in the next ones.
content_texts = Table(
    "content_texts",
    metadata,
    Column("content_id", ForeignKey("contents.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    # Lines count from 1.
    Column("first_line", Integer, nullable=False),
    # Whether the part begins in the middle of its first line.
    Column("is_continued", Boolean, nullable=False),
    Column("text", Text, nullable=False),
    PrimaryKeyConstraint("content_id", "number"),
    Index(None, "content_id", "first_line"),
)

files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("folder_id", ForeignKey("folders.id", ondelete="CASCADE"), nullable=False),
    # Without the name of the folder, which may change.
    Column("name", Text, nullable=False),
    Column("original_name", Text, nullable=False),
    Column("content_id", ForeignKey("contents.id"), nullable=False),
    Column("status", EnumText(FileStatus), nullable=False),
    # The file whose place this one takes as soon as its text is there.
    Column("replaces_id", Text),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("body", Text, nullable=False),
    # Two uploads of one name at the same moment must not both get it.
    Index(
        "uq_files_name",
        "folder_id",
        "name",
        unique=True,
        sqlite_where=text("replaces_id IS NULL AND status <> 'deleted'"),
        postgresql_where=text("replaces_id IS NULL AND status <> 'deleted'"),
    ),
    Index(None, "folder_id", "created_at", "id"),
    Index(None, "content_id"),
    # The files that are not finished yet, and those whose rows are to be removed.
    Index(
        "ix_files_unfinished",
        "created_at",
        sqlite_where=text("status NOT IN ('completed', 'error')"),
        postgresql_where=text("status NOT IN ('completed', 'error')"),
    ),
)

agent_folders = Table(
    "agent_folders",
    metadata,
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("folder_id", ForeignKey("folders.id", ondelete="CASCADE"), nullable=False),
    Column("attached_at", Instant, nullable=False),
    PrimaryKeyConstraint("agent_id", "folder_id"),
    Index(None, "folder_id"),
)

# The files of the folders of an agent, and what it sees of them.
agent_files = Table(
    "agent_files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent_id", ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    Column("file_id", ForeignKey("files.id", ondelete="CASCADE"), nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("last_accessed_at", Instant, nullable=False),
    # The lines that it sees; NULL: from the first, to the last.
    Column("start_line", Integer),
    Column("end_line", Integer),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("agent_id", "file_id"),
    Index(None, "file_id"),
    Index(None, "agent_id", "created_at", "id"),
)

# Threads whose system message shows an old state of the files. The next model call compiles it again.
stale_prompts = Table(
    "stale_prompts",
    metadata,
    Column("thread_id", ForeignKey("threads.id", ondelete="CASCADE"), primary_key=True),
)
