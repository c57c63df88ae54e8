"""The door, watched: each request is a span and a figure; and the figures for Prometheus. Only where an operator asks."""

import asyncio

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http.auth import OPEN_PATHS
from holdfast.ports.telemetry import RequestTelemetry

METRICS_PATH = "/metrics"

# They come every few seconds and say nothing about anybody's use.
_UNMEASURED_PATHS = OPEN_PATHS | {METRICS_PATH}


class RequestMetrics:
    def __init__(self, app: ASGIApp, telemetry: RequestTelemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") in _UNMEASURED_PATHS:
            await self._app(scope, receive, send)
            return
        with self._telemetry.trace_request(
            scope["method"], scope["path"], Headers(scope=scope)
        ) as request:

            async def event_writer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", None)
                    request.set_response(message["status"], route)
                await send(message)

            await self._app(scope, receive, event_writer)


def metrics_route(telemetry: RequestTelemetry) -> Route:
    async def scrape(_request: Request) -> Response:
        text, media_type = await asyncio.to_thread(telemetry.render_metrics)
        return Response(text, media_type=media_type)

    return Route(METRICS_PATH, scrape, methods=["GET"], include_in_schema=False)
