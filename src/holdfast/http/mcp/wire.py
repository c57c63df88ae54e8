"""This wire as one value: what the generic part of ``http`` must know about it."""

import re
from typing import Final

from holdfast.http.mcp.refusals import Refusal, refuse, render_error, render_invalid_request
from holdfast.http.mcp.routes import router
from holdfast.http.wire import Wire

_NOTHING: Final = re.compile(r"(?!)")

MCP: Final = Wire(
    paths=re.compile(r"/mcp(/|$)"),
    routers=(router,),
    open_paths=frozenset(),
    password_headers={"authorization": "bearer ", "x-bare-password": "password "},
    collection_paths=_NOTHING,
    # Which requests send messages, their bodies say. While the server stops, a client is better served by another one
    # for all of them.
    send_paths=re.compile(r"/mcp"),
    upload_paths=_NOTHING,
    ready_paths=frozenset(),
    render_not_ready=refuse,
    render_error=render_error,
    render_invalid_request=render_invalid_request,
    render_refusal=refuse,
    error_bodies=(Refusal,),
)
