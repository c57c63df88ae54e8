"""Identities, and their links with agents and blocks."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identities",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("identifier_key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("identity_type", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
    )
    op.create_index(
        op.f("ix_identities_organization_id_created_at_id"),
        "identities",
        ["organization_id", "created_at", "id"],
    )
    op.create_index(
        "uq_identities_key_in_project",
        "identities",
        ["organization_id", "identifier_key", "project_id"],
        unique=True,
    )
    op.create_index(
        "uq_identities_key_without_project",
        "identities",
        ["organization_id", "identifier_key"],
        unique=True,
        sqlite_where=sa.text("project_id IS NULL"),
        postgresql_where=sa.text("project_id IS NULL"),
    )
    _links("identities_agents", "agent_id", "agents")
    _links("identities_blocks", "block_id", "blocks")


def _links(name: str, holder_id: str, holder_table: str) -> None:
    op.create_table(
        name,
        sa.Column("identity_id", sa.Text(), nullable=False),
        sa.Column(holder_id, sa.Text(), nullable=False),
        sa.Column("attached_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["identity_id"],
            ["identities.id"],
            name=op.f(f"fk_{name}_identity_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            [holder_id],
            [f"{holder_table}.id"],
            name=op.f(f"fk_{name}_{holder_id}"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("identity_id", holder_id, name=op.f(f"pk_{name}")),
    )
    op.create_index(op.f(f"ix_{name}_{holder_id}"), name, [holder_id])
