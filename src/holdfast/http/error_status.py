"""Which HTTP status each error has. How its body looks, each wire says for itself (wire-v1 §1.11)."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Response

from holdfast import errors
from holdfast.http.json_response import json_response
from holdfast.http.wire import Wire

# The SDK repeats by itself what ended with 408, 409, 429 or 5xx, unless it is told not to.
DO_NOT_RETRY = {"x-should-retry": "false"}
RETRY_SOON = {"retry-after": "1"}
UNKNOWN_ERROR = "An unknown error occurred"


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    status: int
    headers: Mapping[str, str] | None = None
    # Only the log may have the error's text.
    secret: bool = False


ERROR_STATUS: Mapping[type[errors.HoldfastError], ErrorStatus] = {
    errors.HoldfastError: ErrorStatus(500, DO_NOT_RETRY, secret=True),
    errors.CallerError: ErrorStatus(400),
    errors.InvalidArgument: ErrorStatus(400),
    errors.AddressForbidden: ErrorStatus(400),
    errors.Unprocessable: ErrorStatus(422),
    errors.ToolSourceInvalid: ErrorStatus(400),
    errors.Unauthorized: ErrorStatus(401, {"www-authenticate": "Bearer"}),
    errors.NotFound: ErrorStatus(404),
    errors.UnknownModel: ErrorStatus(404),
    errors.MethodRetired: ErrorStatus(405),
    errors.TooLarge: ErrorStatus(413),
    errors.UnsupportedFileType: ErrorStatus(415),
    errors.Conflict: ErrorStatus(409, DO_NOT_RETRY),
    errors.AlreadyExists: ErrorStatus(409, DO_NOT_RETRY),
    errors.PendingApproval: ErrorStatus(409, DO_NOT_RETRY),
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
    errors.ContextWindowExceeded: ErrorStatus(400),
    errors.SystemPromptTooLarge: ErrorStatus(400),
    errors.ToolError: ErrorStatus(400),
    errors.DocumentUnreadable: ErrorStatus(400),
    errors.BackendError: ErrorStatus(503),
    errors.StoreUnavailable: ErrorStatus(503, RETRY_SOON),
    # The same request would take as long again.
    errors.WriteTimedOut: ErrorStatus(503, DO_NOT_RETRY),
    errors.DiskFull: ErrorStatus(503, RETRY_SOON),
    # Whatever it was, it may have been done: only the caller can find out.
    errors.OutcomeUnknown: ErrorStatus(503, DO_NOT_RETRY),
    errors.AnswerUnavailable: ErrorStatus(503, DO_NOT_RETRY),
    errors.StoreIsNewer: ErrorStatus(503, DO_NOT_RETRY),
    errors.HomeInUse: ErrorStatus(503, DO_NOT_RETRY),
    errors.SecretKeyDiffers: ErrorStatus(503, DO_NOT_RETRY),
    errors.SettingInvalid: ErrorStatus(503, DO_NOT_RETRY),
    errors.CannotStart: ErrorStatus(503, DO_NOT_RETRY),
    errors.ServerStopping: ErrorStatus(503, DO_NOT_RETRY),
    errors.Undeliverable: ErrorStatus(502),
    errors.McpError: ErrorStatus(502),
    errors.McpUnavailable: ErrorStatus(502),
    errors.McpUnauthorized: ErrorStatus(502),
    errors.McpLoginEnded: ErrorStatus(502, DO_NOT_RETRY),
    errors.LoginFailed: ErrorStatus(502, DO_NOT_RETRY),
    errors.LoginRefused: ErrorStatus(502, DO_NOT_RETRY),
    # The call may have had an effect.
    errors.McpTimedOut: ErrorStatus(408, DO_NOT_RETRY),
    errors.McpCallLost: ErrorStatus(502, DO_NOT_RETRY),
    errors.Bug: ErrorStatus(500, DO_NOT_RETRY, secret=True),
    errors.IllegalTransition: ErrorStatus(500, DO_NOT_RETRY, secret=True),
    # Two callers changed one run. The one that was refused may look again.
    errors.StaleRun: ErrorStatus(409),
    errors.RunFenced: ErrorStatus(409),
    errors.StaleFile: ErrorStatus(409),
    errors.LeaseLost: ErrorStatus(503, RETRY_SOON),
}

_MODEL_ERRORS = {
    error.kind: error for error in ERROR_STATUS if issubclass(error, errors.ModelError)
}


def error_response(wire: Wire, error: errors.HoldfastError) -> Response:
    row = ERROR_STATUS[type(error)]
    return json_response(wire.render_error(error), row.status, row.headers)


def public_text(error: errors.HoldfastError) -> str:
    """What callers may read of the error."""
    return UNKNOWN_ERROR if ERROR_STATUS[type(error)].secret else str(error)


def find_model_error(kind: str) -> type[errors.ModelError] | None:
    """The error class of a failed run, by its failure's ``kind``. None if the failure was not a model's."""
    return _MODEL_ERRORS.get(kind)
