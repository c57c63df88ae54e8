"""Refuses all requests but health and metrics on a server that only executes runs."""

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.wire import Wires

_NO_API = (
    "This server executes runs and answers no requests (HOLDFAST_ROLE=worker). Ask a server with the role "
    "all or api."
)


class WorkerGate:
    """Wraps the application. The status is 503, not 404: the SDK and load balancers try again, and may reach a server
    that answers; and nobody takes an agent for deleted."""

    def __init__(self, app: ASGIApp, wires: Wires, open_paths: frozenset[str]) -> None:
        """``open_paths`` are answered, without a slash at their end; whether they need the password, ``app`` decides."""
        self._app = app
        self._wires = wires
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") not in self._open_paths:
            body = self._wires.find(scope["path"]).render_refusal(_NO_API)
            await json_response(body, 503)(scope, receive, send)
            return
        await self._app(scope, receive, send)
