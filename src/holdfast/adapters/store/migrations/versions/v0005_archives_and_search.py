"""Archives with their passages, vectors, and the index of the words of passages and messages.

The messages that are stored already are indexed afterwards, by ``engine.search_upkeep``: a server must not wait for it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_archives()
    _create_agent_archives()
    _create_passages()
    _index_passages()
    _create_passage_tags()
    for texts, vectors, to_embed in (
        ("passages", "passage_vectors", "passages_to_embed"),
        ("messages", "message_vectors", "messages_to_embed"),
    ):
        _create_vectors(vectors, texts)
        _create_to_embed(to_embed, texts)
    _word_indexes(is_sqlite=op.get_bind().dialect.name == "sqlite")


def _word_indexes(*, is_sqlite: bool) -> None:
    if is_sqlite:
        op.execute(
            "CREATE TABLE index_removals (index_name TEXT NOT NULL, position INTEGER NOT NULL, "
            "PRIMARY KEY (index_name, position)) WITHOUT ROWID"
        )
    for table, index in (("messages", "message_index"), ("passages", "passage_index")):
        if is_sqlite:
            op.execute(
                f"CREATE VIRTUAL TABLE {index} USING fts5(terms, tokenize='ascii', detail=none)"
            )
            op.execute(
                f"CREATE TRIGGER {table}_unindex AFTER DELETE ON {table} BEGIN "  # noqa: S608 - names from above
                f"INSERT OR IGNORE INTO index_removals VALUES ('{index}', old.position); END"
            )
        else:
            op.execute(
                f"CREATE TABLE {index} (position bigint PRIMARY KEY REFERENCES {table} (position) "
                "ON DELETE CASCADE, terms tsvector NOT NULL)"
            )
            op.execute(
                f"CREATE INDEX ix_{index}_terms ON {index} USING gin (terms) "
                "WITH (gin_pending_list_limit = 256)"
            )


def _create_archives() -> None:
    op.create_table(
        "archives",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_archives")),
    )
    op.create_index(
        op.f("ix_archives_organization_id_created_at_id"),
        "archives",
        ["organization_id", "created_at", "id"],
    )


def _create_agent_archives() -> None:
    op.create_table(
        "agent_archives",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("archive_id", sa.Text(), nullable=False),
        sa.Column("attached_at", sa.BigInteger(), nullable=False),
        sa.Column("is_owner", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_archives_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["archive_id"],
            ["archives.id"],
            name=op.f("fk_agent_archives_archive_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("agent_id", "archive_id", name=op.f("pk_agent_archives")),
    )
    op.create_index(op.f("ix_agent_archives_archive_id"), "agent_archives", ["archive_id"])
    op.create_index(
        "uq_agent_archives_owner",
        "agent_archives",
        ["agent_id"],
        unique=True,
        sqlite_where=sa.text("is_owner"),
        postgresql_where=sa.text("is_owner"),
    )


def _create_passages() -> None:
    op.create_table(
        "passages",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=True),
            nullable=False,
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("archive_id", sa.Text(), nullable=True),
        sa.Column("folder_id", sa.Text(), nullable=True),
        sa.Column("file_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(archive_id IS NULL) = (folder_id IS NOT NULL) AND (folder_id IS NULL) = (file_id IS NULL)",
            name="ck_passages_container",
        ),
        sa.ForeignKeyConstraint(
            ["archive_id"], ["archives.id"], name=op.f("fk_passages_archive_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["file_id"], ["files.id"], name=op.f("fk_passages_file_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["folder_id"], ["folders.id"], name=op.f("fk_passages_folder_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_passages")),
        sa.UniqueConstraint("id", name=op.f("uq_passages_id")),
        sqlite_autoincrement=True,
    )


def _index_passages() -> None:
    for columns in (
        ["archive_id", "created_at", "id"],
        ["archive_id", "fingerprint"],
        ["file_id", "position"],
        ["folder_id", "position"],
        ["organization_id", "created_at", "id"],
        ["run_id"],
    ):
        op.create_index(op.f(f"ix_passages_{'_'.join(columns)}"), "passages", columns)


def _create_passage_tags() -> None:
    op.create_table(
        "passage_tags",
        sa.Column("passage_id", sa.Text(), nullable=False),
        sa.Column("archive_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["archive_id"],
            ["archives.id"],
            name=op.f("fk_passage_tags_archive_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["passage_id"],
            ["passages.id"],
            name=op.f("fk_passage_tags_passage_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("passage_id", "tag", name=op.f("pk_passage_tags")),
    )
    op.create_index(op.f("ix_passage_tags_archive_id_tag"), "passage_tags", ["archive_id", "tag"])


def _create_vectors(name: str, texts: str) -> None:
    op.create_table(
        name,
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=True),
            nullable=False,
        ),
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("container_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Integer(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["position"],
            [f"{texts}.position"],
            name=op.f(f"fk_{name}_position"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("number", name=op.f(f"pk_{name}")),
        sa.UniqueConstraint("position", "model", name=op.f(f"uq_{name}_position_model")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f(f"ix_{name}_container_id_model_number"), name, ["container_id", "model", "number"]
    )


def _create_to_embed(name: str, texts: str) -> None:
    op.create_table(
        name,
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("container_id", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["position"],
            [f"{texts}.position"],
            name=op.f(f"fk_{name}_position"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("position", "model", name=op.f(f"pk_{name}")),
    )
    op.create_index(op.f(f"ix_{name}_container_id_model"), name, ["container_id", "model"])
    op.create_index(op.f(f"ix_{name}_due_at"), name, ["due_at"])
