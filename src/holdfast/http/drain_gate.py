"""Refuses new messages while the server stops. Running work can still be read and cancelled."""

import asyncio
import math

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.paths import canonical_path
from holdfast.http.wire import Wires

_STOPPING = (
    "The server is stopping and takes no new messages. This one was not stored: send it again when "
    "the server is back."
)


class DrainGate:
    """Wraps the application. Once the server stops, it refuses new messages and says "stopping" to ready checks.

    This only spares callers a wait: a message that still gets through is stored, and the next start runs it.
    """

    def __init__(self, app: ASGIApp, wires: Wires) -> None:
        self._app = app
        self._wires = wires
        self._stops_at: float | None = None

    def refuse_messages(self, seconds: float) -> None:
        """Begin to refuse. The server will have stopped in so many seconds."""
        self._stops_at = asyncio.get_running_loop().time() + seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if self._stops_at is not None and scope["type"] == "http":
            answer = self._refusal(scope["method"], scope["path"], self._stops_at)
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, method: str, path: str, stops_at: float) -> Response | None:
        wire = self._wires.find(path)
        path = canonical_path(path, wire)
        if path in wire.ready_paths:
            return json_response(wire.render_not_ready("stopping"), 503)
        if method != "POST" or not wire.send_paths.fullmatch(path):
            return None
        # Nothing was stored, so it is safe to send it again (unlike after ServerStopping, whose run is stored).
        # The SDK does so by itself after this many seconds, when the next process can have started.
        remaining = math.ceil(stops_at - asyncio.get_running_loop().time())
        headers = {"retry-after": str(max(1, remaining))}
        return json_response(wire.render_refusal(_STOPPING), 503, headers)
