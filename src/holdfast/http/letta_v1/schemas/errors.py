"""The bodies of errors (wire-v1 §1.11)."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType


class Problem(Struct, frozen=True, kw_only=True):
    detail: str
    # The run of the message, if it is stored; for a busy thread the run that it is busy with.
    run_id: str | UnsetType = UNSET


class ValidationProblem(Struct, frozen=True, kw_only=True):
    """``detail`` is the Python rendering of a list of faults; ``examples`` shows well-formed path ids."""

    trace_id: str
    detail: str
    examples: list[str] | UnsetType = UNSET


class PendingCall(Struct, frozen=True, kw_only=True):
    tool_call_id: str
    name: str


class PendingApprovalDetail(Struct, frozen=True, kw_only=True):
    """Not in V1: the calls that wait, and the body that answers them when it is sent to the same address."""

    code: str
    message: str
    pending_request_id: str
    pending_calls: list[PendingCall] | UnsetType = UNSET
    unblock: dict[str, Any] | UnsetType = UNSET


class PendingApprovalProblem(Struct, frozen=True, kw_only=True):
    detail: PendingApprovalDetail
    # The run of the message, if it was stored before the thread began to wait.
    run_id: str | UnsetType = UNSET


class MismatchProblem(Struct, frozen=True, kw_only=True):
    """The answer names other calls than those that wait. V1 only has ``detail``."""

    detail: str
    pending_request_id: str
    pending_calls: list[PendingCall]
    unblock: dict[str, Any]


class ModelFault(Struct, frozen=True, kw_only=True):
    """``detail`` is the provider's own text."""

    type: str
    message: str
    detail: str


class ModelProblem(Struct, frozen=True, kw_only=True):
    error: ModelFault
    run_id: str | UnsetType = UNSET


class McpProblemDetail(Struct, frozen=True, kw_only=True):
    code: str
    message: str
    error: str | UnsetType = UNSET
    mcp_server_name: str | UnsetType = UNSET


class McpProblem(Struct, frozen=True, kw_only=True):
    """An MCP server cannot be reached, or is not known (tools-v1 §1.6, §1.10)."""

    detail: McpProblemDetail


ANY_PROBLEM = (
    Problem,
    ValidationProblem,
    PendingApprovalProblem,
    MismatchProblem,
    ModelProblem,
    McpProblem,
)
