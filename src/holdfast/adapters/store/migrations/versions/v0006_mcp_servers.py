"""MCP servers with their tools, and OAuth sessions with them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _servers()
    _sessions()
    # A batch, because SQLite cannot add a constraint to a table.
    with op.batch_alter_table("tools") as tools:
        tools.add_column(sa.Column("mcp_server_id", sa.Text(), nullable=True))
        tools.create_foreign_key(
            op.f("fk_tools_mcp_server_id"),
            "mcp_servers",
            ["mcp_server_id"],
            ["id"],
            ondelete="CASCADE",
        )
    op.create_index(op.f("ix_tools_mcp_server_id_name"), "tools", ["mcp_server_id", "name"])


def _servers() -> None:
    op.create_table(
        "mcp_servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("encrypted_secrets", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mcp_servers")),
        sa.UniqueConstraint(
            "organization_id", "name", name=op.f("uq_mcp_servers_organization_id_name")
        ),
    )


def _sessions() -> None:
    op.create_table(
        "mcp_sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("url_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("refresh_ends_at", sa.BigInteger(), nullable=True),
        sa.Column("encrypted_secrets", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["server_id"],
            ["mcp_servers.id"],
            name=op.f("fk_mcp_sessions_server_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mcp_sessions")),
        sa.UniqueConstraint("state", name=op.f("uq_mcp_sessions_state")),
    )
    op.create_index(
        op.f("ix_mcp_sessions_organization_id_user_id_url_hash_updated_at"),
        "mcp_sessions",
        ["organization_id", "user_id", "url_hash", "updated_at"],
    )
    op.create_index(op.f("ix_mcp_sessions_server_id"), "mcp_sessions", ["server_id"])
