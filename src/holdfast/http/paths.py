"""One spelling for each path, before a route is looked up. Clients use a slash at the end or not, and no request is
redirected (wire-v1 §1.6)."""

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.wire import Wire, Wires


class CanonicalPath:
    def __init__(self, app: ASGIApp, wires: Wires) -> None:
        self._app = app
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            wire = self._wires.find(scope["path"])
            if _has_nul(scope):
                body = wire.render_refusal("The address has a NUL character.")
                await json_response(body, 422)(scope, receive, send)
                return
            scope["path"] = canonical_path(scope["path"], wire)
        await self._app(scope, receive, send)


def canonical_path(path: str, wire: Wire) -> str:
    bare = path.rstrip("/")
    return f"{bare}/" if wire.collection_paths.fullmatch(bare) else bare or "/"


def _has_nul(scope: Scope) -> bool:
    """PostgreSQL refuses a NUL even in a search."""
    return "\0" in scope["path"] or b"%00" in scope["query_string"]
