"""The servers of the deployment and their queue."""

from holdfast.http.letta_v1.schemas import servers as wire
from holdfast.usecases.servers import Deployment, ListedServer


def api_deployment(deployment: Deployment) -> wire.Deployment:
    return wire.Deployment(
        now=deployment.now,
        servers=[_server(listed) for listed in deployment.servers],
        queue=wire.Queue(
            waiting_runs=deployment.queue.waiting,
            oldest_seconds=deployment.queue.oldest_seconds(deployment.now),
        ),
    )


def _server(listed: ListedServer) -> wire.Server:
    server = listed.server
    return wire.Server(
        id=server.id,
        host=server.host,
        pid=server.process.pid,
        version=server.version,
        role=server.role,
        is_alive=listed.is_alive,
        is_leader=listed.is_leader,
        is_this=listed.is_this,
        is_draining=server.load.is_draining,
        is_notified=server.load.is_notified,
        live_runs=server.load.live_runs,
        max_runs=server.max_runs,
        started_at=server.started_at,
        heartbeat_at=server.heartbeat_at,
        lease_ends_at=server.lease_ends_at,
    )
