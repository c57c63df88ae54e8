"""Folders and files."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_UNFINISHED = sa.text("status NOT IN ('completed', 'error')")
_INCOMPLETE = sa.text("status IN ('receiving', 'deleted')")
_DELETED = sa.text("deleted_at IS NOT NULL")
_NOT_DELETED = sa.text("deleted_at IS NULL")
_NAMED = sa.text("replaces_id IS NULL AND status <> 'deleted'")


def upgrade() -> None:
    _create_contents()
    _create_content_bytes()
    _create_content_texts()
    _create_folders()
    _create_files()
    _create_agent_folders()
    _create_agent_files()
    _create_stale_prompts()


def _create_contents() -> None:
    op.create_table(
        "contents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_contents")),
        sa.UniqueConstraint(
            "organization_id",
            "digest",
            "format",
            name=op.f("uq_contents_organization_id_digest_format"),
        ),
    )
    op.create_index(
        "ix_contents_incomplete",
        "contents",
        ["created_at"],
        sqlite_where=_INCOMPLETE,
        postgresql_where=_INCOMPLETE,
    )


def _create_content_bytes() -> None:
    op.create_table(
        "content_bytes",
        sa.Column("content_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["content_id"],
            ["contents.id"],
            name=op.f("fk_content_bytes_content_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("content_id", "number", name=op.f("pk_content_bytes")),
    )


def _create_content_texts() -> None:
    op.create_table(
        "content_texts",
        sa.Column("content_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("first_line", sa.Integer(), nullable=False),
        sa.Column("is_continued", sa.Boolean(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["content_id"],
            ["contents.id"],
            name=op.f("fk_content_texts_content_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("content_id", "number", name=op.f("pk_content_texts")),
    )
    op.create_index(
        op.f("ix_content_texts_content_id_first_line"),
        "content_texts",
        ["content_id", "first_line"],
    )


def _create_folders() -> None:
    op.create_table(
        "folders",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("embedding", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_folders")),
    )
    op.create_index(
        "uq_folders_name",
        "folders",
        ["organization_id", "name"],
        unique=True,
        sqlite_where=_NOT_DELETED,
        postgresql_where=_NOT_DELETED,
    )
    op.create_index(
        "ix_folders_deleted",
        "folders",
        ["deleted_at"],
        sqlite_where=_DELETED,
        postgresql_where=_DELETED,
    )
    op.create_index(
        op.f("ix_folders_organization_id_created_at_id"),
        "folders",
        ["organization_id", "created_at", "id"],
    )


def _create_files() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("folder_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("original_name", sa.Text(), nullable=False),
        sa.Column("content_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("replaces_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["content_id"], ["contents.id"], name=op.f("fk_files_content_id")),
        sa.ForeignKeyConstraint(
            ["folder_id"], ["folders.id"], name=op.f("fk_files_folder_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index(op.f("ix_files_content_id"), "files", ["content_id"])
    op.create_index(
        op.f("ix_files_folder_id_created_at_id"), "files", ["folder_id", "created_at", "id"]
    )
    op.create_index(
        "ix_files_unfinished",
        "files",
        ["created_at"],
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )
    op.create_index(
        "uq_files_name",
        "files",
        ["folder_id", "name"],
        unique=True,
        sqlite_where=_NAMED,
        postgresql_where=_NAMED,
    )


def _create_agent_folders() -> None:
    op.create_table(
        "agent_folders",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("folder_id", sa.Text(), nullable=False),
        sa.Column("attached_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_folders_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["folder_id"],
            ["folders.id"],
            name=op.f("fk_agent_folders_folder_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("agent_id", "folder_id", name=op.f("pk_agent_folders")),
    )
    op.create_index(op.f("ix_agent_folders_folder_id"), "agent_folders", ["folder_id"])


def _create_agent_files() -> None:
    op.create_table(
        "agent_files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("last_accessed_at", sa.BigInteger(), nullable=False),
        sa.Column("start_line", sa.Integer(), nullable=True),
        sa.Column("end_line", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_files_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["file_id"], ["files.id"], name=op.f("fk_agent_files_file_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_files")),
        sa.UniqueConstraint("agent_id", "file_id", name=op.f("uq_agent_files_agent_id_file_id")),
    )
    op.create_index(
        op.f("ix_agent_files_agent_id_created_at_id"),
        "agent_files",
        ["agent_id", "created_at", "id"],
    )
    op.create_index(op.f("ix_agent_files_file_id"), "agent_files", ["file_id"])


def _create_stale_prompts() -> None:
    op.create_table(
        "stale_prompts",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"],
            ["threads.id"],
            name=op.f("fk_stale_prompts_thread_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("thread_id", name=op.f("pk_stale_prompts")),
    )
