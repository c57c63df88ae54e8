"""The door while the server stops: nothing new comes in, what is under way can still be read and cancelled."""

import asyncio
import math
import re

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import __version__
from holdfast.http.json_response import json_response
from holdfast.http.letta_v1.routes.health import Health
from holdfast.http.letta_v1.schemas.errors import Problem
from holdfast.http.paths import canonical_path


class DrainGate:
    """The application, until the server is told to stop. Then it takes no message in, and probes are told so;
    to read and to cancel goes on.

    It spares callers a wait, no more: a message that slips through is stored, and run by the next start.
    """

    _SEND_PATHS = re.compile(r"/v1/(agents|conversations)/[^/]+/messages(/stream|/async)?")
    _READY_PATHS = frozenset({"/v1/ready/", "/latest/ready/"})

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._stops_at: float | None = None

    def refuse_messages(self, seconds: float) -> None:
        """From now on; in so long the server will be gone."""
        self._stops_at = asyncio.get_running_loop().time() + seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if self._stops_at is not None and scope["type"] == "http":
            answer = self._refusal(scope["method"], canonical_path(scope["path"]), self._stops_at)
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, method: str, path: str, gone_at: float) -> Response | None:
        if path in self._READY_PATHS:
            return json_response(Health(__version__, "stopping"), 503)
        if method != "POST" or not self._SEND_PATHS.fullmatch(path):
            return None
        # Nothing was stored, so it is right to send it again (unlike ServerStopping, whose run is kept): the SDK
        # does so by itself after as long as this says, when this process has made room for the next.
        left = math.ceil(gone_at - asyncio.get_running_loop().time())
        text = (
            "The server is stopping and takes no new messages. This one was not stored: send it again when "
            "the server is back."
        )
        return json_response(Problem(detail=text), 503, {"retry-after": str(max(1, left))})
