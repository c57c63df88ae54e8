"""A running server without its HTTP: the services, the background tasks that use them, and the order in which all of it
starts and stops."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from holdfast import __version__
from holdfast.assembly.services import build_services
from holdfast.assembly.telemetry import open_telemetry
from holdfast.assembly.tools import open_tool_connections
from holdfast.assembly.warm_up import warm_up
from holdfast.config import Settings
from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID
from holdfast.core.mcp_servers import McpServer
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.callbacks import CallbackDelivery
from holdfast.engine.deployment_tasks import DeploymentTasks, Takeover
from holdfast.engine.embedding import Embedding
from holdfast.engine.file_removal import FileRemoval
from holdfast.engine.ingestion import Ingestion
from holdfast.engine.queue_metrics import QueueMetrics
from holdfast.engine.search_upkeep import SearchUpkeep
from holdfast.engine.worker import Worker
from holdfast.http.letta_v1.to_wire.callbacks import callback_body
from holdfast.ports.services import Services
from holdfast.ports.telemetry import RequestTelemetry
from holdfast.ports.tool_connections import ToolConnections
from holdfast.usecases import agent_files, approvals, mcp_configured, mcp_renewal, tools

_DEFAULT_ACTOR = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The services and the background tasks that use them. HTTP is not part of it."""

    services: Services
    worker: Worker
    worker_task: asyncio.Task[None]
    deployment_task: asyncio.Task[None]
    telemetry: RequestTelemetry | None
    tool_connections: ToolConnections

    async def stop(self, drain_seconds: float) -> None:
        """Wait up to ``drain_seconds`` for runs to end; other servers, or the next start, resume the others. Then end all
        streams, whose readers have all events of this process by then. Cancelling ``worker_task`` cuts the wait short."""
        self.deployment_task.cancel()
        self.worker.drain(drain_seconds)
        await asyncio.wait([self.worker_task])
        self.services.events.disconnect_readers()


@asynccontextmanager
async def running_server(settings: Settings) -> AsyncIterator[RunningServer]:
    """Build the services and run the background tasks; on leaving, stop the tasks and close everything."""
    async with AsyncExitStack() as stack:
        # Before the task group, so that an error for the operator is not wrapped in an ExceptionGroup.
        telemetry = open_telemetry(settings, stack)
        services, model, sandbox, load_reader = await build_services(settings, stack, telemetry)
        tool_connections = open_tool_connections(settings, stack, sandbox)
        # New tokens that cannot be stored are lost, so this is before the store is closed.
        stack.push_async_callback(services.unfinished_work.wait, mcp_renewal.LOCK_SECONDS)
        # Before anything is written: from here on this server has the time of the database.
        await services.lease.register()
        await tools.add_builtin(services, _DEFAULT_ACTOR)
        configured = await mcp_configured.synchronise(services, _DEFAULT_ACTOR)
        worker = Worker(services)
        if telemetry is not None:
            telemetry.observe_runs(live=lambda: worker.live_count)
            telemetry.observe_queue()
            telemetry.observe_tasks(asyncio.get_running_loop())
        load_reader.worker = worker
        async with asyncio.TaskGroup() as group:
            worker_task = group.create_task(worker.run(), name="worker")
            deployment_task = group.create_task(
                _deployment_tasks(settings, services, configured).run(), name="deployment"
            )
            side_tasks = [group.create_task(warm_up(model), name="warm-up")]
            if telemetry is not None:
                side_tasks.append(group.create_task(QueueMetrics(services).run(), name="queue"))
            try:
                yield RunningServer(
                    services, worker, worker_task, deployment_task, telemetry, tool_connections
                )
            finally:
                for task in (worker_task, deployment_task, *side_tasks):
                    task.cancel()


def _deployment_tasks(
    settings: Settings, services: Services, configured: Sequence[McpServer]
) -> DeploymentTasks:
    expiry = ApprovalExpiry(services, approvals.expire)
    callbacks = CallbackDelivery(services, callback_body, secret=settings.callback_secret)
    ingestion = Ingestion(services, agent_files.open_in_agents)
    upkeep = SearchUpkeep(services, __version__)
    return DeploymentTasks(
        services,
        [
            expiry.run,
            callbacks.run,
            Takeover(services).run,
            ingestion.run,
            FileRemoval(services).run,
            Embedding(services).run,
            upkeep.run,
            partial(mcp_configured.read_tools, services, _DEFAULT_ACTOR, configured),
        ],
    )
