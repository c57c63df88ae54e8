"""The bodies of errors (wire-v1 §1.11). Their status codes are in ``http/error_status``."""

from collections.abc import Mapping, Sequence

from fastapi import Response
from msgspec import UNSET, UnsetType

from holdfast import errors
from holdfast.core.runs import RunFailure
from holdfast.http.error_status import (
    DO_NOT_RETRY,
    ERROR_STATUS,
    UNKNOWN_ERROR,
    find_model_error,
    public_text,
)
from holdfast.http.json_response import json_response
from holdfast.http.letta_v1.schemas.errors import (
    ModelFault,
    ModelProblem,
    PendingApprovalProblem,
    Problem,
    ValidationProblem,
)
from holdfast.http.letta_v1.to_wire.unblock_hint import mismatch_problem, pending_detail
from holdfast.http.letta_v1.to_wire.validation import describe_faults, example_ids
from holdfast.http.wire import Fault

# Some errors repeat what the caller sent, which may be megabytes.
_MAX_TEXT_CHARS = 4_000

# The code that V1 puts before the text of these errors.
_CODES: Mapping[type[errors.HoldfastError], str] = {
    errors.InvalidArgument: "INVALID_ARGUMENT",
    errors.AddressForbidden: "INVALID_ARGUMENT",
    errors.UnknownModel: "NOT_FOUND",
    errors.Conflict: "CONFLICT",
    errors.PendingApproval: "CONFLICT",
    errors.StaleRun: "CONFLICT",
    errors.McpTimedOut: "TIMEOUT",
    errors.ContextWindowExceeded: "CONTEXT_WINDOW_EXCEEDED",
    errors.SystemPromptTooLarge: "CONTEXT_WINDOW_EXCEEDED",
}

# Model errors whose body is a Problem and not a ModelProblem.
_PLAIN_MODEL_ERRORS = (
    errors.ModelOverloaded,
    errors.ContextWindowExceeded,
    errors.SystemPromptTooLarge,
)


def render_error(error: errors.HoldfastError) -> object:
    text = _with_code(type(error), _cut(public_text(error)))
    match error:
        case errors.PendingApproval():
            detail = pending_detail(error, _with_code(type(error), ""))
            return PendingApprovalProblem(detail=detail, run_id=error.run_id or UNSET)
        case errors.AnswerMismatch():
            return mismatch_problem(error)
        case errors.Conflict(run_id=str(run_id)):
            return Problem(detail=text, run_id=run_id)
        case errors.AnswerUnavailable():
            return Problem(detail=f"{text} {_how_to_follow(error.run_id)}", run_id=error.run_id)
        case errors.ModelError():
            return _render_model_error(type(error), error.summary, error.detail)
        case errors.McpError() if not isinstance(error, errors.McpTimedOut):
            return _render_mcp_error(error)
        case _:
            return Problem(detail=text)


def _render_mcp_error(error: errors.McpError) -> ModelProblem:
    """tools-v1 §1.8"""
    fault = ModelFault(
        type="mcp_connection_error",
        message="Failed to connect to MCP server.",
        detail=f"INTERNAL_SERVER_ERROR: {_cut(error.why)}",
    )
    return ModelProblem(error=fault)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}…"


def render_refusal(text: str) -> Problem:
    return Problem(detail=text)


def render_invalid_request(faults: Sequence[Fault]) -> ValidationProblem:
    return ValidationProblem(
        trace_id="", detail=describe_faults(faults), examples=example_ids(faults)
    )


def _how_to_follow(run_id: str) -> str:
    return (
        f"Do not send the message again: GET /v1/runs/{run_id} shows its run, and POST /v1/runs/{run_id}/stream "
        "streams it from the start."
    )


def failure_response(failure: RunFailure, run_id: str) -> Response:
    """The answer to a caller that waited for a run, which failed.

    The SDK must not send the message again by itself: the engine has already asked the model as often as it may,
    and tools of the run may have had their effect.
    """
    error = find_model_error(failure.kind)
    if error is None:
        text = f"{failure.message} {failure.detail}".strip()
        problem = Problem(detail=text or UNKNOWN_ERROR, run_id=run_id)
        return json_response(problem, 500, DO_NOT_RETRY)
    body = _render_model_error(error, failure.message, failure.detail, run_id)
    return json_response(body, ERROR_STATUS[error].status, DO_NOT_RETRY)


def _render_model_error(
    error: type[errors.ModelError], message: str, detail: str, run_id: str | UnsetType = UNSET
) -> Problem | ModelProblem:
    if issubclass(error, _PLAIN_MODEL_ERRORS):
        return Problem(detail=_with_code(error, f"{message} {detail}".strip()), run_id=run_id)
    fault = ModelFault(type=error.kind, message=message, detail=detail)
    return ModelProblem(error=fault, run_id=run_id)


def _with_code(error: type[errors.HoldfastError], text: str) -> str:
    code = _CODES.get(error)
    return f"{code}: {text}" if code else text
