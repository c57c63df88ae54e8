"""The web application: all routes, behind the gates. What it serves is given to it, never made here."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from holdfast import __version__
from holdfast.http import error_status
from holdfast.http.auth import OPEN_PATHS, BodyLimit, LoopbackGate, PasswordGate
from holdfast.http.json_response import describe_response, fill_in_schemas
from holdfast.http.letta_v1.routes import (
    agents,
    approvals,
    blocks,
    cancel,
    compaction,
    conversations,
    health,
    messages,
    models,
    providers,
    runs,
    steps,
    tags,
    tools,
)
from holdfast.http.letta_v1.schemas.errors import ANY_PROBLEM
from holdfast.http.paths import CanonicalPath
from holdfast.http.request_metrics import METRICS_PATH, RequestMetrics, metrics_route
from holdfast.ports.services import Services
from holdfast.ports.telemetry import RequestTelemetry

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

# They are tried in this order, so the busiest comes first.
_ROUTERS = (
    messages.router,
    conversations.router,
    cancel.router,
    agents.router,
    runs.router,
    steps.router,
    steps.telemetry_router,
    providers.router,
    tools.router,
    blocks.router,
    approvals.router,
    models.router,
    compaction.router,
    tags.router,
    runs.internal_router,
)
_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": describe_response(ANY_PROBLEM, description="The request cannot be carried out as sent.")[
        200
    ],
    "5XX": describe_response(ANY_PROBLEM, description="The server or a model provider failed.")[
        200
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    password: str | None = None
    max_body_bytes: int = 32 * 1024 * 1024
    # Without a password, answer only to loopback names. Off if something else guards the port.
    loopback_only_hosts: bool = True
    # Who watches the requests, if anybody does; whether it may be asked for its figures, and by everybody.
    telemetry: RequestTelemetry | None = None
    metrics: bool = False
    open_metrics: bool = False
    version: str = __version__


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = fill_in_schemas(super().openapi())
        return self.openapi_schema


def build_app(
    services: Services | None, settings: HttpSettings, *, lifespan: Lifespan | None = None
) -> FastAPI:
    """The application for this house. Without one, ``lifespan`` sets ``app.state.house`` before it yields."""
    app = _App(
        title="Holdfast",
        version=settings.version,
        docs_url="/docs",
        redoc_url=None,
        lifespan=lifespan,
        middleware=_build_middleware(settings),
        responses=_ERROR_RESPONSES,
        redirect_slashes=False,
        # A body without a content type is JSON: there is nothing else it could be.
        strict_content_type=False,
        # FastAPI would tell query strings and the words of errors: what is told of requests is ``watched``'s affair.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    if services is not None:
        app.state.services = services
    error_status.install_error_handlers(app)
    app.include_router(health.router, prefix="/v1")
    app.include_router(health.router, prefix="/latest", include_in_schema=False)
    for router in _ROUTERS:
        app.include_router(router)
    if settings.telemetry is not None and settings.metrics:
        app.router.routes.append(metrics_route(settings.telemetry))
    return app


def _build_middleware(settings: HttpSettings) -> list[Middleware]:
    """From the outside in."""
    open_paths = OPEN_PATHS | {METRICS_PATH} if settings.open_metrics else OPEN_PATHS
    if settings.password:
        gate = Middleware(PasswordGate, password=settings.password, open_paths=open_paths)
    else:
        any_host = not settings.loopback_only_hosts
        gate = Middleware(LoopbackGate, any_host=any_host, open_paths=open_paths)
    telemetry = settings.telemetry
    return [
        *([Middleware(RequestMetrics, telemetry=telemetry)] if telemetry is not None else ()),
        gate,
        Middleware(BodyLimit, max_bytes=settings.max_body_bytes),
        Middleware(CanonicalPath),
    ]
