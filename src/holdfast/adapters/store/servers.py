"""The servers that share the database, with their leases. Every time here is by the clock of the database."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    insert,
    literal_column,
    or_,
    select,
    text,
    type_coerce,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from holdfast.adapters.store import tables
from holdfast.adapters.store.columns import Instant
from holdfast.core.servers import Server, ServerLoad, ServerProcess
from holdfast.ports.store import Renewal

_servers = tables.servers

# The time of one connection's database; None: the database is asked.
DatabaseClock = Callable[[], datetime]

# What the clock of PostgreSQL says when it executes the statement.
_database_time = literal_column(
    "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)", BigInteger
)
_ask_time = select(type_coerce(_database_time, Instant))
_register_worker: Final = text(
    "SELECT worker_id FROM holdfast_queue.procrastinate_register_worker_v1()"
)
_unregister_worker: Final = text(
    "SELECT holdfast_queue.procrastinate_unregister_worker_v1(:worker)"
)
_beat_worker: Final = text("SELECT holdfast_queue.procrastinate_update_heartbeat_v1(:worker)")

_is_alive = or_(_servers.c.lease_ends_at.is_(None), _servers.c.lease_ends_at > bindparam("now"))
_select_alive = (
    select(_servers.c.id, _servers.c.worker_id)
    .where(_is_alive)
    # The first is the leader: one that is stopping does no more work for others.
    .order_by(_servers.c.is_draining, _servers.c.started_at, _servers.c.id)
)


def _extend_lease(now: ColumnElement[Any], until: ColumnElement[Any]) -> ReturningUpdate[Any]:
    return (
        update(_servers)
        .where(_servers.c.id == bindparam("this_id"), _servers.c.lease_ends_at > now)
        .values(
            heartbeat_at=now,
            lease_ends_at=until,
            live_runs=bindparam("given_runs"),
            is_notified=bindparam("given_notified"),
            is_draining=bindparam("given_draining"),
        )
        .returning(_servers.c.heartbeat_at)
    )


# The time is not asked before: the process may be paused in between, and a lease that has expired must not come back.
_renew = _extend_lease(_database_time, _database_time + bindparam("microseconds", type_=BigInteger))
_renew_by_given_time = _extend_lease(
    bindparam("now", type_=Instant), bindparam("until", type_=Instant)
)


class SqlServers:
    def __init__(self, connection: Connection, clock: DatabaseClock | None) -> None:
        self._connection = connection
        self._clock = clock

    def now(self) -> datetime:
        if self._clock is not None:
            return self._clock()
        return self._connection.execute(_ask_time).scalar_one()

    def register(self, server: Server, lease_seconds: float | None) -> Server:
        now = self.now()
        until = None if lease_seconds is None else now + timedelta(seconds=lease_seconds)
        # The clock is the database's, and so is the queue whose workers have numbers.
        worker_id = None if self._clock else self._connection.execute(_register_worker).scalar_one()
        server = replace(
            server, started_at=now, heartbeat_at=now, lease_ends_at=until, worker_id=worker_id
        )
        self._connection.execute(insert(_servers), _to_row(server))
        return server

    def renew(self, server_id: str, lease_seconds: float, load: ServerLoad) -> Renewal | None:
        now = self._extend_lease(server_id, timedelta(seconds=lease_seconds), load)
        if now is None:
            return None
        alive = self._connection.execute(_select_alive, {"now": now}).all()
        worker_id = next((row.worker_id for row in alive if row.id == server_id), None)
        if worker_id is not None:
            # For those who look at Procrastinate's tables; nothing here depends on it.
            self._connection.execute(_beat_worker, {"worker": worker_id})
        return Renewal(now, is_leader=alive[0].id == server_id, has_peers=len(alive) > 1)

    def _extend_lease(self, server_id: str, lease: timedelta, load: ServerLoad) -> datetime | None:
        """Return the time from which the lease counts; None if it has expired."""
        values = {
            "this_id": server_id,
            "given_runs": load.live_runs,
            "given_notified": load.is_notified,
            "given_draining": load.is_draining,
        }
        if self._clock is None:
            values["microseconds"] = lease // timedelta(microseconds=1)
            return self._connection.execute(_renew, values).scalar()
        now = self._clock()
        values |= {"now": now, "until": now + lease}
        return self._connection.execute(_renew_by_given_time, values).scalar()

    def expire(self, server_id: str) -> None:
        self._connection.execute(
            update(_servers).where(_servers.c.id == server_id).values(lease_ends_at=self.now())
        )

    def find(self, server_id: str) -> Server | None:
        row = self._connection.execute(select(_servers).where(_servers.c.id == server_id)).first()
        return None if row is None else _from_row(row)

    def list(self) -> Sequence[Server]:
        ordered = select(_servers).order_by(_servers.c.started_at, _servers.c.id)
        return [_from_row(row) for row in self._connection.execute(ordered)]

    def list_alive_ids(self) -> Sequence[str]:
        alive = self._connection.execute(_select_alive, {"now": self.now()})
        return [row.id for row in alive]

    def delete_dead(self, before: datetime) -> int:
        dead = delete(_servers).where(_servers.c.lease_ends_at < before)
        workers = self._connection.execute(dead.returning(_servers.c.worker_id)).scalars().all()
        for worker_id in filter(None, workers):
            self._connection.execute(_unregister_worker, {"worker": worker_id})
        return len(workers)


def _to_row(server: Server) -> dict[str, Any]:
    return {
        "id": server.id,
        "host": server.host,
        "pid": server.process.pid,
        "pid_namespace": server.process.namespace,
        "started_at_tick": server.process.started_at_tick,
        "version": server.version,
        "role": server.role,
        "max_runs": server.max_runs,
        "started_at": server.started_at,
        "heartbeat_at": server.heartbeat_at,
        "lease_ends_at": server.lease_ends_at,
        "worker_id": server.worker_id,
        "live_runs": server.load.live_runs,
        "is_notified": server.load.is_notified,
        "is_draining": server.load.is_draining,
    }


def _from_row(row: Row[Any]) -> Server:
    return Server(
        id=row.id,
        host=row.host,
        process=ServerProcess(
            pid=row.pid, namespace=row.pid_namespace, started_at_tick=row.started_at_tick
        ),
        version=row.version,
        role=row.role,
        max_runs=row.max_runs,
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        lease_ends_at=row.lease_ends_at,
        worker_id=row.worker_id,
        load=ServerLoad(
            live_runs=row.live_runs, is_notified=row.is_notified, is_draining=row.is_draining
        ),
    )
