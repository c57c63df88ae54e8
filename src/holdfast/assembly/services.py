"""All ports together, each with its adapter. Those that are created from more than a setting are in a module of their own."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from holdfast.adapters.clock import RandomIds, SystemClock
from holdfast.adapters.mcp.authorization import SdkMcpAuthorization
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.assembly.deployment import LoadReader, build_dispatch, join_deployment
from holdfast.assembly.documents import open_documents
from holdfast.assembly.mcp import open_mcp, read_mcp_options
from holdfast.assembly.models import open_models
from holdfast.assembly.storage import open_events, open_store
from holdfast.assembly.telemetry import with_telemetry
from holdfast.assembly.tools import build_toolbox, open_sandbox
from holdfast.config import Settings
from holdfast.ports.services import Services
from holdfast.ports.telemetry import NO_TELEMETRY

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otel import OtelTelemetry


async def build_services(
    settings: Settings, stack: AsyncExitStack, telemetry: "OtelTelemetry | None"
) -> tuple[Services, ModelRouter, SubprocessSandbox, LoadReader]:
    """The services, which ``stack`` closes in the opposite order; the model without telemetry; the sandbox; and the reader
    of the load, which waits for a worker."""
    mcp_options = read_mcp_options(settings)
    clock = SystemClock()
    store = await open_store(settings, stack)
    sandbox = await open_sandbox(settings, stack)
    model, catalogue, prices, embedder = open_models(settings, stack, clock)
    bell, lease, load_reader = await join_deployment(settings, stack, store, clock)
    events = open_events(settings, stack, store, bell)
    toolbox = build_toolbox(settings, sandbox)
    services = Services(
        store=store,
        events=events,
        dispatch=build_dispatch(settings, store, bell, lease, telemetry or NO_TELEMETRY),
        bell=bell,
        lease=lease,
        model=model,
        catalogue=catalogue,
        toolbox=toolbox,
        outgoing=GuardedOutgoing(settings.allowed_private_hosts),
        prices=prices,
        clock=clock,
        ids=RandomIds(),
        documents=open_documents(settings, stack),
        message_embedding=settings.message_embedding,
        embedder=embedder,
        mcp=open_mcp(settings, stack, sandbox),
        mcp_options=mcp_options,
        limits=settings.limits,
        mcp_authorization=SdkMcpAuthorization(settings.allowed_private_hosts),
    )
    if telemetry is not None:
        services = with_telemetry(services, telemetry)
    toolbox.bind(services)
    return services, model, sandbox, load_reader
