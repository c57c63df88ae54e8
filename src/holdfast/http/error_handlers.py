"""Turns every exception of a route into an answer. The last resort of HTTP: nothing gets past it."""

import logging

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast.errors import HoldfastError
from holdfast.http.error_status import ERROR_STATUS, UNKNOWN_ERROR, error_response
from holdfast.http.json_body import InvalidBody
from holdfast.http.json_response import json_response
from holdfast.http.wire import Wire, Wires

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
        return self._wires.find(request.scope["path"])

    async def on_holdfast_error(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HoldfastError):
            raise error
        if ERROR_STATUS[type(error)].status >= 500:
            _log.error("request.failed", extra=_log_fields(request), exc_info=error)
        return error_response(self._wire(request), error)

    async def on_invalid_request(self, request: Request, error: Exception) -> Response:
        if isinstance(error, InvalidBody):
            faults = error.faults
        elif isinstance(error, RequestValidationError):
            faults = error.errors()
        else:
            raise error
        return json_response(self._wire(request).render_invalid_request(faults), 422)

    async def on_http_exception(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        is_wrong_method = error.status_code == 405
        headers = {"allow": _allowed_methods(request)} if is_wrong_method else error.headers
        body = self._wire(request).render_refusal(error.detail)
        return json_response(body, error.status_code, headers)

    async def on_unexpected_error(self, request: Request, error: Exception) -> Response:
        _log.error("request.failed", extra=_log_fields(request), exc_info=error)
        return json_response(self._wire(request).render_refusal(UNKNOWN_ERROR), 500)


def _log_fields(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": request.url.path}


def _allowed_methods(request: Request) -> str:
    """Every method of the path. The router names only those of the first route that it found."""
    routes = request.app.router.routes
    scope = dict(request.scope)
    return ", ".join(
        method
        for method in _METHODS
        if any(route.matches(scope | {"method": method})[0] is Match.FULL for route in routes)
    )
