"""How large the body of a request may be. Uploads of files have a limit of their own."""

from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.wire import Wires

# What a form may have beside the file: names, types and borders of its parts.
_FORM_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Limit:
    max_bytes: int
    refusal: str


class BodyLimit:
    def __init__(self, app: ASGIApp, max_bytes: int, max_file_mb: int, wires: Wires) -> None:
        self._app = app
        self._wires = wires
        self._of_bodies = _Limit(
            max_bytes,
            f"The request body is larger than {max_bytes} bytes, the limit of this server. "
            "The operator sets it with HOLDFAST_MAX_BODY_BYTES.",
        )
        self._of_uploads = _Limit(
            max_file_mb * 1024 * 1024 + _FORM_BYTES,
            f"The file is larger than {max_file_mb} MiB, the limit of this server. The operator sets it with "
            "HOLDFAST_MAX_FILE_MB.",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wire = self._wires.find(scope["path"])
        is_upload = wire.upload_paths.fullmatch(scope["path"].rstrip("/"))
        limit = self._of_uploads if is_upload else self._of_bodies
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > limit.max_bytes:
            body = wire.render_refusal(limit.refusal)
            await json_response(body, 413, {"connection": "close"})(scope, receive, send)
            return
        await self._app(scope, _count_bytes(receive, limit), send)


def _count_bytes(receive: Receive, limit: _Limit) -> Receive:
    """For bodies that do not announce their length, or lie."""
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit.max_bytes:
            # An HTTPException, because FastAPI turns any other error from here into a 400.
            raise HTTPException(413, limit.refusal, {"connection": "close"})
        return message

    return receive_counted
