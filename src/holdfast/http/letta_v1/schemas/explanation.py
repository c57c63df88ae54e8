"""The explanation of a run: what it is doing and what it waits for. Not in V1."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from holdfast.core.cancellation import Cancellation
from holdfast.core.deadlines import OnTimeout
from holdfast.core.explanation import Phase
from holdfast.http.letta_v1.schemas.messages import ErrorMessage, StopReasonName
from holdfast.http.letta_v1.schemas.runs import RunStatusName, TokenUsage
from holdfast.http.letta_v1.schemas.steps import Attempt


class AwaitedCall(Struct, frozen=True, kw_only=True):
    tool_call_id: str
    name: str
    # running: the tool runs; returned: other calls still run; decision, result: it waits for one.
    needs: Literal["running", "returned", "decision", "result"]
    answered_by: str | None = None
    expires_at: datetime | None = None
    on_timeout: OnTimeout | None = None


class WaitsFor(Struct, frozen=True, kw_only=True):
    """What the run waits for: earlier runs of the thread, a model, tool calls."""

    runs: list[str]
    model: str | None
    tool_calls: list[AwaitedCall]
    # The approval request, for ``/v1/approvals/{id}``.
    approval_id: str | None


class HttpCall(Struct, frozen=True, kw_only=True):
    """A request that would unblock or stop the run, and its effect."""

    effect: str
    method: str
    path: str
    body: dict[str, Any]


class Lease(Struct, frozen=True, kw_only=True):
    """The claim on the run. ``expires_at`` is null if nobody has claimed it, and if no other server can use the
    database."""

    # Whether the server that answers executes the run.
    held_here: bool
    # When other servers may take it over.
    expires_at: datetime | None
    # Whether the server that has claimed it is alive.
    is_valid: bool
    # The server that has claimed it, and the name of its machine.
    server_id: str | None
    host: str | None
    # Grows with each claim; the writes of earlier claims are refused.
    fence: int


class Explanation(Struct, frozen=True, kw_only=True):
    run_id: str
    agent_id: str
    conversation_id: str | None
    status: RunStatusName
    phase: Phase
    # The explanation in one sentence.
    summary: str
    # Since when the run is in this phase.
    since: datetime | None
    waits_for: WaitsFor
    # What happens without a request.
    by_itself: str | None
    # What would unblock or stop the run, the likeliest first.
    unblock: list[HttpCall]
    stop_reason: StopReasonName | None
    error: ErrorMessage | None
    cancellation: Cancellation | None
    num_steps: int
    # Failed calls of the model in the newest step, and how often a process died while it carried the run out.
    failed_attempts: list[Attempt]
    recoveries: int
    # Who executes the run.
    lease: Lease
    usage: TokenUsage
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
