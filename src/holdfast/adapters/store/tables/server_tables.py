"""The servers that share the database, and facts about the deployment as a whole."""

from sqlalchemy import BigInteger, Boolean, Column, Integer, Table, Text

from holdfast.adapters.store.columns import EnumText, Instant
from holdfast.adapters.store.tables.schema import metadata
from holdfast.core.servers import Role

servers = Table(
    "servers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("pid_namespace", Text),
    Column("started_at_tick", BigInteger),
    Column("version", Text, nullable=False),
    Column("role", EnumText(Role), nullable=False),
    Column("max_runs", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("heartbeat_at", Instant, nullable=False),
    Column("lease_ends_at", Instant),
    # The number of the server among the workers of the job queue.
    Column("worker_id", BigInteger),
    Column("live_runs", Integer, nullable=False),
    Column("is_notified", Boolean, nullable=False),
    Column("is_draining", Boolean, nullable=False),
)

# One value each: what all servers of the deployment must agree on.
deployment = Table(
    "deployment",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
