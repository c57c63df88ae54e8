"""Several servers share the database: who they are, which of them has claimed a run, and what all of them agree on.

The job queue on PostgreSQL is not here: ``procrastinate_schema`` makes it, in a schema of its own.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _servers()
    _deployment()
    _runs()


def _servers() -> None:
    op.create_table(
        "servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pid_namespace", sa.Text(), nullable=True),
        sa.Column("started_at_tick", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("max_runs", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_ends_at", sa.BigInteger(), nullable=True),
        sa.Column("worker_id", sa.BigInteger(), nullable=True),
        sa.Column("live_runs", sa.Integer(), nullable=False),
        sa.Column("is_notified", sa.Boolean(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_servers")),
    )


def _deployment() -> None:
    deployment = op.create_table(
        "deployment",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_deployment")),
    )
    # The first revision that servers of a later one can share the database with.
    op.bulk_insert(deployment, [{"key": "oldest_compatible_revision", "value": "0003"}])


def _runs() -> None:
    op.add_column("runs", sa.Column("owner_id", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False))
    is_live = sa.text("status IN ('cancelling', 'queued', 'running')")
    op.create_index(
        "ix_runs_live_thread",
        "runs",
        ["thread_id"],
        sqlite_where=is_live,
        postgresql_where=is_live,
    )
