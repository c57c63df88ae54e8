"""The web application: the routes of all wires behind the middleware. The only module of ``http`` that names wires."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import __version__
from holdfast.core.addresses import IPNetwork
from holdfast.http.auth import LoopbackGate, PasswordGate
from holdfast.http.body_limit import BodyLimit
from holdfast.http.error_handlers import install_error_handlers
from holdfast.http.host import HostCheck
from holdfast.http.json_response import describe_response, fill_in_schemas
from holdfast.http.letta_v1.wire import LETTA_V1
from holdfast.http.mcp.wire import MCP
from holdfast.http.paths import CanonicalPath
from holdfast.http.proxies import ForwardedHeaders, ForwardedPrefix
from holdfast.http.readiness import Readiness
from holdfast.http.request_metrics import METRICS_PATH, RequestMetrics, metrics_route
from holdfast.http.uploads import MAX_UPLOADS
from holdfast.http.wire import Wire, Wires
from holdfast.ports.services import Services
from holdfast.ports.telemetry import RequestTelemetry
from holdfast.ports.tool_connections import ToolConnections

# To add a wire, make a folder beside ``letta_v1`` and name it here.
WIRES: Final = Wires([LETTA_V1, MCP])

_OPENAPI_PATH: Final = "/openapi.json"

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    password: str | None = None
    max_body_bytes: int = 32 * 1024 * 1024
    # The largest file that can be uploaded.
    max_file_mb: int = 50
    # Without a password, answer only to loopback names. Off if something else protects the port.
    loopback_only_hosts: bool = True
    # Who may say for whom it calls, and under which address this server is published.
    trusted_proxies: tuple[IPNetwork, ...] = ()
    # What measures and traces requests, if anything does.
    telemetry: RequestTelemetry | None = None
    # What recognises the requests of tools, which a server without a password refuses.
    tool_connections: ToolConnections | None = None
    # Whether there is a page with the metrics, and whether it needs no password.
    metrics: bool = False
    open_metrics: bool = False
    version: str = __version__


class _App(FastAPI):
    needs_password = False
    # Nobody may see the document while it is being made.
    _openapi_lock = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        with self._openapi_lock:
            if self.openapi_schema is None:
                self.openapi_schema = self._make_openapi()
            return self.openapi_schema

    def _make_openapi(self) -> dict[str, Any]:
        document = fill_in_schemas(super().openapi())
        if self.needs_password:
            _describe_password(document)
        return document


class _DescriptionOnThread:
    """Makes the OpenAPI document on a thread before its route is asked for it: that takes half a second."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith(_OPENAPI_PATH):
            await asyncio.to_thread(scope["app"].openapi)
        await self._app(scope, receive, send)


def build_app(
    services: Services | None, settings: HttpSettings, *, lifespan: Lifespan | None = None
) -> FastAPI:
    """The application over these services. Without them, ``lifespan`` sets ``app.state.services`` before it yields."""
    app = _App(
        title="Holdfast",
        version=settings.version,
        docs_url="/docs",
        openapi_url=_OPENAPI_PATH,
        redoc_url=None,
        lifespan=lifespan,
        middleware=_build_middleware(settings),
        redirect_slashes=False,
        # A body without a content type can only be JSON.
        strict_content_type=False,
        # FastAPI's own telemetry would record query strings and error texts. ``request_metrics`` does not.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.readiness = Readiness()
    app.state.upload_slots = asyncio.Semaphore(MAX_UPLOADS)
    app.needs_password = bool(settings.password)
    if services is not None:
        app.state.services = services
    install_error_handlers(app, WIRES)
    for wire in WIRES.all:
        responses = _describe_errors(wire)
        for router in wire.routers:
            app.include_router(router, responses=responses)
    if settings.telemetry is not None and settings.metrics:
        app.router.routes.append(metrics_route(settings.telemetry))
    return app


def _describe_errors(wire: Wire) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the bodies of errors, the same for all routes of the wire."""
    bodies = wire.error_bodies
    refused = describe_response(bodies, description="The request cannot be carried out as sent.")
    failed = describe_response(bodies, description="The server or a model provider failed.")
    return {"4XX": refused[200], "5XX": failed[200]}


def _describe_password(document: dict[str, Any]) -> None:
    """For OpenAPI: which operations need the password, and how it is sent."""
    document["components"]["securitySchemes"] = {"password": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"password": []}]
    for path, operations in document["paths"].items():
        if path.removesuffix("/") in WIRES.open_paths:
            for operation in operations.values():
                operation["security"] = []


def _build_middleware(settings: HttpSettings) -> list[Middleware]:
    """From the outside in."""
    open_paths = WIRES.open_paths | {METRICS_PATH} if settings.open_metrics else WIRES.open_paths
    forwarded = Middleware(ForwardedHeaders, trusted=settings.trusted_proxies)
    if settings.password:
        gate = Middleware(
            PasswordGate, password=settings.password, open_paths=open_paths, wires=WIRES
        )
        gates = [forwarded, gate]
    else:
        any_host = not settings.loopback_only_hosts
        gate = Middleware(
            LoopbackGate,
            any_host=any_host,
            open_paths=open_paths,
            wires=WIRES,
            tool_connections=settings.tool_connections,
        )
        # Who is on this machine is decided by the connection, not by what it says.
        gates = [gate, forwarded]
    middleware = [
        Middleware(HostCheck, wires=WIRES),
        *gates,
        Middleware(
            BodyLimit,
            max_bytes=settings.max_body_bytes,
            max_file_mb=settings.max_file_mb,
            wires=WIRES,
        ),
        Middleware(CanonicalPath, wires=WIRES),
        Middleware(ForwardedPrefix),
        Middleware(_DescriptionOnThread),
    ]
    if settings.telemetry is None:
        return middleware
    # Probes come every few seconds and tell nothing about use.
    unmeasured = WIRES.open_paths | {METRICS_PATH}
    metrics = Middleware(RequestMetrics, telemetry=settings.telemetry, unmeasured_paths=unmeasured)
    return [metrics, *middleware]
