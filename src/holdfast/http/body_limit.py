"""How large the body of a request may be."""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.wire import Wires


class BodyLimit:
    def __init__(self, app: ASGIApp, max_bytes: int, wires: Wires) -> None:
        self._app = app
        self._wires = wires
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            body = self._wires.find(scope["path"]).render_refusal(self._refusal())
            await json_response(body, 413, {"connection": "close"})(scope, receive, send)
            return
        await self._app(scope, self._count_bytes(receive), send)

    def _count_bytes(self, receive: Receive) -> Receive:
        """For bodies that do not announce their length, or lie."""
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                # An HTTPException, because FastAPI turns any other error from here into a 400.
                raise HTTPException(413, self._refusal(), {"connection": "close"})
            return message

        return receive_counted

    def _refusal(self) -> str:
        return (
            f"The request body is larger than {self._max_bytes} bytes, the limit of this server. "
            "The operator sets it with HOLDFAST_MAX_BODY_BYTES."
        )
