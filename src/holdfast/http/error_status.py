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
from holdfast.http.letta_v1.to_wire.unblock_hint import mismatch_problem, pending_detail
from holdfast.http.validation import describe_faults, example_ids

# The SDK resends by itself what ended with 408, 409, 429 or 5xx, unless told not to.
DO_NOT_RETRY = {"x-should-retry": "false"}
RETRY_SOON = {"retry-after": "1"}
UNKNOWN_ERROR = "An unknown error occurred"

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """``prefix`` is the code that V1 puts before the text."""

    status: int
    prefix: str = ""
    headers: Mapping[str, str] | None = None
    # The text is for the log alone.
    secret: bool = False


ERROR_STATUS: Mapping[type[errors.HoldfastError], ErrorStatus] = {
    errors.HoldfastError: ErrorStatus(500, secret=True),
    errors.CallerError: ErrorStatus(400),
    errors.InvalidArgument: ErrorStatus(400, "INVALID_ARGUMENT: "),
    errors.AddressForbidden: ErrorStatus(400, "INVALID_ARGUMENT: "),
    errors.Unprocessable: ErrorStatus(422),
    errors.ToolSourceInvalid: ErrorStatus(400),
    errors.Unauthorized: ErrorStatus(401, headers={"www-authenticate": "Bearer"}),
    errors.NotFound: ErrorStatus(404),
    errors.UnknownModel: ErrorStatus(404, "NOT_FOUND: "),
    errors.MethodRetired: ErrorStatus(405),
    errors.TooLarge: ErrorStatus(413),
    errors.Conflict: ErrorStatus(409, "CONFLICT: ", DO_NOT_RETRY),
    errors.AlreadyExists: ErrorStatus(409, headers=DO_NOT_RETRY),
    errors.PendingApproval: ErrorStatus(409, "CONFLICT: ", DO_NOT_RETRY),
    errors.AnswerMismatch: ErrorStatus(400),
    errors.ThreadBusy: ErrorStatus(409),
    errors.ModelError: ErrorStatus(500),
    errors.ModelTimedOut: ErrorStatus(504),
    errors.ModelRateLimited: ErrorStatus(429),
    errors.ModelAuthFailed: ErrorStatus(401),
    errors.ModelOutOfCredits: ErrorStatus(402),
    errors.ModelRejectedRequest: ErrorStatus(400),
    errors.ModelOverloaded: ErrorStatus(503),
    errors.ModelAnswerEmpty: ErrorStatus(500),
    errors.ContextWindowExceeded: ErrorStatus(400, "CONTEXT_WINDOW_EXCEEDED: "),
    errors.SystemPromptTooLarge: ErrorStatus(400, "CONTEXT_WINDOW_EXCEEDED: "),
    errors.ToolError: ErrorStatus(400),
    errors.BackendError: ErrorStatus(503),
    errors.StoreUnavailable: ErrorStatus(503, headers=RETRY_SOON),
    errors.StoreIsNewer: ErrorStatus(503, headers=DO_NOT_RETRY),
    errors.HomeInUse: ErrorStatus(503, headers=DO_NOT_RETRY),
    errors.SettingInvalid: ErrorStatus(503, headers=DO_NOT_RETRY),
    errors.CannotStart: ErrorStatus(503, headers=DO_NOT_RETRY),
    errors.ServerStopping: ErrorStatus(503, headers=DO_NOT_RETRY),
    errors.Undeliverable: ErrorStatus(502),
    errors.Bug: ErrorStatus(500, secret=True),
    errors.IllegalTransition: ErrorStatus(500, secret=True),
    # Two callers changed one run: whoever lost may look again.
    errors.StaleRun: ErrorStatus(409, "CONFLICT: "),
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
    return json_response(_error_body(error, row), row.status, row.headers)


def failure_response(failure: RunFailure) -> Response:
    """The answer to a caller who waited for a run that failed. The SDK must not send the message again by itself: the
    engine has asked the model as often as it may, and the turn may have done things already."""
    error = _MODEL_ERRORS.get(failure.kind)
    if error is None:
        text = f"{failure.message} {failure.detail}".strip()
        return json_response(Problem(detail=text or UNKNOWN_ERROR), 500, DO_NOT_RETRY)
    row = ERROR_STATUS[error]
    body = _model_body(error, row, failure.message, failure.detail)
    return json_response(body, row.status, DO_NOT_RETRY)


def _error_body(error: errors.HoldfastError, row: ErrorStatus) -> object:
    text = UNKNOWN_ERROR if row.secret else f"{row.prefix}{error}"
    match error:
        case errors.PendingApproval():
            return PendingApprovalProblem(detail=pending_detail(error, row.prefix))
        case errors.AnswerMismatch():
            return mismatch_problem(error)
        case errors.ThreadBusy(run_id=str(run_id)):
            return Problem(detail=text, run_id=run_id)
        case errors.ModelError():
            return _model_body(type(error), row, error.summary, error.detail)
        case _:
            return Problem(detail=text)


def _model_body(
    error: type[errors.ModelError], row: ErrorStatus, message: str, detail: str
) -> Problem | ModelProblem:
    if issubclass(error, _PLAIN_MODEL_ERRORS):
        return Problem(detail=f"{row.prefix}{message} {detail}".strip())
    return ModelProblem(error=ModelFault(type=error.kind, message=message, detail=detail))


async def _on_holdfast_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, errors.HoldfastError):
        raise error
    if ERROR_STATUS[type(error)].status >= 500:
        _log.error("request.failed", extra=_log_fields(request), exc_info=error)
    return error_response(error)


def _log_fields(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": request.url.path}


async def _on_invalid_request(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    faults = error.errors()
    body = ValidationProblem(
        trace_id="", detail=describe_faults(faults), examples=example_ids(faults)
    )
    return json_response(body, 422)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    headers = {"allow": _allowed_methods(request)} if error.status_code == 405 else error.headers
    return json_response(Problem(detail=error.detail), error.status_code, headers)


def _allowed_methods(request: Request) -> str:
    """Every method of the path: the router names only those of the first route that it found."""
    routes = request.app.router.routes
    asked = dict(request.scope)
    return ", ".join(
        method
        for method in _METHODS
        if any(route.matches(asked | {"method": method})[0] is Match.FULL for route in routes)
    )


async def _on_unexpected_error(request: Request, error: Exception) -> Response:
    _log.error("request.failed", extra=_log_fields(request), exc_info=error)
    return json_response(Problem(detail=UNKNOWN_ERROR), 500)


HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], Any]] = {
    errors.HoldfastError: _on_holdfast_error,
    RequestValidationError: _on_invalid_request,
    HTTPException: _on_http_exception,
    Exception: _on_unexpected_error,
}


def install_error_handlers(app: FastAPI) -> None:
    for error, handler in HANDLERS.items():
        app.add_exception_handler(error, handler)
