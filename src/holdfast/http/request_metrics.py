"""Measures and traces each request, and serves the metrics to Prometheus. Only where the operator asks for it."""

import asyncio

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.ports.telemetry import RequestTelemetry

METRICS_PATH = "/metrics"


class RequestMetrics:
    def __init__(
        self, app: ASGIApp, telemetry: RequestTelemetry, unmeasured_paths: frozenset[str]
    ) -> None:
        self._app = app
        self._telemetry = telemetry
        self._unmeasured_paths = unmeasured_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") in self._unmeasured_paths:
            await self._app(scope, receive, send)
            return
        with self._telemetry.trace_request(
            scope["method"], scope["path"], Headers(scope=scope)
        ) as request:

            async def send_and_record(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", None)
                    request.set_response(message["status"], route)
                await send(message)

            await self._app(scope, receive, send_and_record)


def metrics_route(telemetry: RequestTelemetry) -> Route:
    async def scrape(_request: Request) -> Response:
        text, media_type = await asyncio.to_thread(telemetry.render_metrics)
        return Response(text, media_type=media_type)

    return Route(METRICS_PATH, scrape, methods=["GET"], include_in_schema=False)
