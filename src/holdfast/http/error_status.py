"""Which HTTP status and body each error becomes. The one place that knows (wire-v1 §1.11)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast import errors
from holdfast.core.runs import RunFailure
from holdfast.http.json_response import json_response
from holdfast.http.letta_v1.schemas.errors import (
    ModelFault,
    ModelProblem,
    PendingApprovalProblem,
    Problem,
    ValidationProblem,
)
from holdfast.http.letta_v1.to_wire.way_out import mismatch, pending_detail
from holdfast.http.validation import described, examples

# The SDK resends by itself what ended with 408, 409, 429 or 5xx, unless told not to.
DO_NOT_RETRY = {"x-should-retry": "false"}
TRY_AGAIN_SOON = {"retry-after": "1"}
UNKNOWN = "An unknown error occurred"

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """``prefix`` is the code that V1 puts before the text."""

    status: int
    prefix: str = ""
    headers: Mapping[str, str] | None = None
    # The text is for the log alone.
    secret: bool = False


ERROR_STATUS: Mapping[type[errors.HoldfastError], Row] = {
    errors.HoldfastError: Row(500, secret=True),
    errors.CallerError: Row(400),
    errors.InvalidArgument: Row(400, "INVALID_ARGUMENT: "),
    errors.AddressForbidden: Row(400, "INVALID_ARGUMENT: "),
    errors.Unprocessable: Row(422),
    errors.ToolSourceInvalid: Row(400),
    errors.Unauthorized: Row(401, headers={"www-authenticate": "Bearer"}),
    errors.NotFound: Row(404),
    errors.UnknownModel: Row(404, "NOT_FOUND: "),
    errors.MethodRetired: Row(405),
    errors.TooLarge: Row(413),
    errors.Conflict: Row(409, "CONFLICT: ", DO_NOT_RETRY),
    errors.AlreadyExists: Row(409, headers=DO_NOT_RETRY),
    errors.PendingApproval: Row(409, "CONFLICT: ", DO_NOT_RETRY),
    errors.AnswerMismatch: Row(400),
    errors.ThreadBusy: Row(409),
    errors.ModelError: Row(500),
    errors.ModelTimedOut: Row(504),
    errors.ModelRateLimited: Row(429),
    errors.ModelAuthFailed: Row(401),
    errors.ModelOutOfCredits: Row(402),
    errors.ModelRejectedRequest: Row(400),
    errors.ModelOverloaded: Row(503),
    errors.ModelAnswerEmpty: Row(500),
    errors.ContextWindowExceeded: Row(400, "CONTEXT_WINDOW_EXCEEDED: "),
    errors.SystemPromptTooLarge: Row(400, "CONTEXT_WINDOW_EXCEEDED: "),
    errors.ToolError: Row(400),
    errors.BackendError: Row(503),
    errors.StoreUnavailable: Row(503, headers=TRY_AGAIN_SOON),
    errors.StoreIsNewer: Row(503, headers=DO_NOT_RETRY),
    errors.HomeInUse: Row(503, headers=DO_NOT_RETRY),
    errors.SettingInvalid: Row(503, headers=DO_NOT_RETRY),
    errors.CannotStart: Row(503, headers=DO_NOT_RETRY),
    errors.ServerStopping: Row(503, headers=DO_NOT_RETRY),
    errors.Undeliverable: Row(502),
    errors.Bug: Row(500, secret=True),
    errors.IllegalTransition: Row(500, secret=True),
    # Two callers changed one run: whoever lost may look again.
    errors.RunMoved: Row(409, "CONFLICT: "),
}

# V1 answers these provider failures in its plain family.
_PLAIN_MODEL_ERRORS = (
    errors.ModelOverloaded,
    errors.ContextWindowExceeded,
    errors.SystemPromptTooLarge,
)

_MODEL_ERRORS = {
    error.kind: error for error in ERROR_STATUS if issubclass(error, errors.ModelError)
}


def error_response(error: errors.HoldfastError) -> Response:
    row = ERROR_STATUS[type(error)]
    return json_response(_body(error, row), row.status, row.headers)


def failure_response(failure: RunFailure) -> Response:
    """The answer to a caller who waited for a run that failed. The SDK must not send the message again by itself: the
    engine has asked the model as often as it may, and the turn may have done things already."""
    error = _MODEL_ERRORS.get(failure.kind)
    if error is None:
        text = f"{failure.message} {failure.detail}".strip()
        return json_response(Problem(detail=text or UNKNOWN), 500, DO_NOT_RETRY)
    row = ERROR_STATUS[error]
    body = _model_body(error, row, failure.message, failure.detail)
    return json_response(body, row.status, DO_NOT_RETRY)


def _body(error: errors.HoldfastError, row: Row) -> object:
    text = UNKNOWN if row.secret else f"{row.prefix}{error}"
    match error:
        case errors.PendingApproval():
            return PendingApprovalProblem(detail=pending_detail(error, row.prefix))
        case errors.AnswerMismatch():
            return mismatch(error)
        case errors.ThreadBusy(run_id=str(run_id)):
            return Problem(detail=text, run_id=run_id)
        case errors.ModelError():
            return _model_body(type(error), row, error.summary, error.detail)
        case _:
            return Problem(detail=text)


def _model_body(
    error: type[errors.ModelError], row: Row, message: str, detail: str
) -> Problem | ModelProblem:
    if issubclass(error, _PLAIN_MODEL_ERRORS):
        return Problem(detail=f"{row.prefix}{message} {detail}".strip())
    return ModelProblem(error=ModelFault(type=error.kind, message=message, detail=detail))


async def _on_holdfast_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, errors.HoldfastError):
        raise error
    if ERROR_STATUS[type(error)].status >= 500:
        _log.error("request.failed", extra=_about(request), exc_info=error)
    return error_response(error)


def _about(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": request.url.path}


async def _on_invalid_request(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    faults = error.errors()
    body = ValidationProblem(trace_id="", detail=described(faults), examples=examples(faults))
    return json_response(body, 422)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    headers = {"allow": _allowed(request)} if error.status_code == 405 else error.headers
    return json_response(Problem(detail=error.detail), error.status_code, headers)


def _allowed(request: Request) -> str:
    """Every method of the path: the router names only those of the first route that it found."""
    routes = request.app.router.routes
    asked = dict(request.scope)
    return ", ".join(
        method
        for method in _METHODS
        if any(route.matches(asked | {"method": method})[0] is Match.FULL for route in routes)
    )


async def _on_anything_else(request: Request, error: Exception) -> Response:
    _log.error("request.failed", extra=_about(request), exc_info=error)
    return json_response(Problem(detail=UNKNOWN), 500)


HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], Any]] = {
    errors.HoldfastError: _on_holdfast_error,
    RequestValidationError: _on_invalid_request,
    HTTPException: _on_http_exception,
    Exception: _on_anything_else,
}


def install(app: FastAPI) -> None:
    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
