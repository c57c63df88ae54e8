"""Turns every exception of a route into an answer. The last resort of HTTP: nothing gets past it."""

import logging
from collections.abc import Iterator
from itertools import chain

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from holdfast.errors import HoldfastError, McpError, ServerStopping
from holdfast.http.error_status import (
    DO_NOT_RETRY,
    ERROR_STATUS,
    UNKNOWN_ERROR,
    error_response,
)
from holdfast.http.json_body import InvalidBody
from holdfast.http.json_response import json_response
from holdfast.http.wire import Wire, Wires

# The order in which an answer names them.
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_log = logging.getLogger(__name__)


def install_error_handlers(app: FastAPI, wires: Wires) -> None:
    handlers = _ErrorHandlers(wires)
    app.add_exception_handler(HoldfastError, handlers.on_holdfast_error)
    app.add_exception_handler(RequestValidationError, handlers.on_invalid_request)
    app.add_exception_handler(InvalidBody, handlers.on_invalid_request)
    app.add_exception_handler(HTTPException, handlers.on_http_exception)
    app.add_exception_handler(Exception, handlers.on_unexpected_error)


class _ErrorHandlers:
    """One method for each class of exceptions; Starlette calls the one of the nearest class."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires

    def _wire(self, request: Request) -> Wire:
        prefix = request.scope.get("root_path", "")
        return self._wires.find(request.scope["path"].removeprefix(prefix))

    async def on_holdfast_error(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HoldfastError):
            raise error
        if isinstance(error, ServerStopping):
            # Nothing failed: the caller learns that the run is kept, and the operator asked for the stop.
            fields = _log_fields(request) | {"run_id": error.run_id}
            _log.info("request.interrupted", extra=fields)
        elif isinstance(error, McpError):
            # It failed elsewhere, and the caller is told. What it says may have an address with a key in it.
            fields = _log_fields(request) | {
                "server_name": error.server,
                "error": type(error).__name__,
            }
            _log.warning("mcp.failed", extra=fields)
        elif ERROR_STATUS[type(error)].status >= 500:
            _log.error("request.failed", extra=_log_fields(request), exc_info=error)
        return error_response(self._wire(request), error)

    async def on_invalid_request(self, request: Request, error: Exception) -> Response:
        if isinstance(error, InvalidBody):
            faults = error.faults
        elif isinstance(error, RequestValidationError):
            faults = error.errors()
        else:
            raise error
        if request.method not in self._allowed_methods(request):
            # DELETE /v1/tools/count, say, which also has the form of DELETE /v1/tools/{tool_id}.
            return await self.on_http_exception(request, HTTPException(405))
        return json_response(self._wire(request).render_invalid_request(faults), 422)

    async def on_http_exception(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        is_wrong_method = error.status_code == 405
        headers = (
            {"allow": ", ".join(self._allowed_methods(request))}
            if is_wrong_method
            else error.headers
        )
        body = self._wire(request).render_refusal(error.detail)
        return json_response(body, error.status_code, headers)

    async def on_unexpected_error(self, request: Request, error: Exception) -> Response:
        _log.error("request.failed", extra=_log_fields(request), exc_info=error)
        # How far the request came is not known, so it must not be repeated without a look.
        return json_response(self._wire(request).render_refusal(UNKNOWN_ERROR), 500, DO_NOT_RETRY)

    def _allowed_methods(self, request: Request) -> list[str]:
        """Every method of the path. The router names only those of the first route that it found.

        The path may have the form of several routes: then it is that of those which have least of it in parameters.
        """
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.scope["path"],
            "root_path": request.scope.get("root_path", ""),
        }
        found: dict[int, set[str]] = {}
        for route in self._routes(request):
            match, matched = route.matches(scope)
            if match is not Match.NONE:
                values = matched.get("path_params", {}).values()
                size = sum(len(str(value)) for value in values)
                found.setdefault(size, set()).update(route.methods or ())
        allowed = found[min(found)] if found else set()
        return [method for method in _METHODS if method in allowed]

    def _routes(self, request: Request) -> Iterator[Route]:
        """Those of the wires, and those that belong to none, such as that of the metrics."""
        every = [router.routes for wire in self._wires.all for router in wire.routers]
        for route in chain(request.app.router.routes, *every):
            if isinstance(route, Route):
                yield route


def _log_fields(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": request.url.path}
