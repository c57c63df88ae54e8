"""One spelling per path, before any route is looked up: clients use both and none is redirected (wire-v1 §1.6)."""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.letta_v1.schemas.errors import Problem

# Collections end with a slash, everything below them does not.
_COLLECTION_PATH = re.compile(r"/(v1|latest)/[^/]+")


class CanonicalPath:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if _has_nul(scope):
                response = json_response(Problem(detail="The address has a NUL character."), 422)
                await response(scope, receive, send)
                return
            scope["path"] = canonical_path(scope["path"])
        await self._app(scope, receive, send)


def canonical_path(path: str) -> str:
    bare = path.rstrip("/")
    return f"{bare}/" if _COLLECTION_PATH.fullmatch(bare) else bare or "/"


def _has_nul(scope: Scope) -> bool:
    """PostgreSQL cannot even look for one."""
    return "\0" in scope["path"] or b"%00" in scope["query_string"]
