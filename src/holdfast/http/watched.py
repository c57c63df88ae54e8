"""The door, watched: each request is a span and a figure; and the figures for Prometheus. Only where an operator asks."""

import asyncio

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http.auth import OPEN_PATHS
from holdfast.ports.telemetry import Requests

METRICS_PATH = "/metrics"

# They come every few seconds and say nothing about anybody's use.
_UNWATCHED = OPEN_PATHS | {METRICS_PATH}


class WatchedRequests:
    def __init__(self, app: ASGIApp, telemetry: Requests) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") in _UNWATCHED:
            await self._app(scope, receive, send)
            return
        with self._telemetry.request(
            scope["method"], scope["path"], Headers(scope=scope)
        ) as request:

            async def telling(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", None)
                    request.answered(message["status"], route)
                await send(message)

            await self._app(scope, receive, telling)


def metrics_route(telemetry: Requests) -> Route:
    async def scrape(_request: Request) -> Response:
        text, media_type = await asyncio.to_thread(telemetry.scrape)
        return Response(text, media_type=media_type)

    return Route(METRICS_PATH, scrape, methods=["GET"], include_in_schema=False)
