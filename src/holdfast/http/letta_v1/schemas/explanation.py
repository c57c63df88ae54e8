"""What a run says when it is asked what it does. Not in V1."""

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
    # running: its tool is at work; returned: others are waited for; decision, result: somebody must give it.
    needs: Literal["running", "returned", "decision", "result"]
    answered_by: str | None = None
    expires_at: datetime | None = None
    on_timeout: OnTimeout | None = None


class WaitsFor(Struct, frozen=True, kw_only=True):
    """What is waited for: the runs before it, a model, tool calls."""

    runs: list[str]
    model: str | None
    tool_calls: list[AwaitedCall]
    # The approval request, for ``/v1/approvals/{id}``.
    approval_id: str | None


class HttpCall(Struct, frozen=True, kw_only=True):
    """A request that would change how things stand, and what it does."""

    effect: str
    method: str
    path: str
    body: dict[str, Any]


class Lease(Struct, frozen=True):
    """One process carries the runs of a store, for as long as it lives: there is no time after which another may
    take them."""

    held_here: bool
    expires_at: datetime | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    run_id: str
    agent_id: str
    conversation_id: str | None
    status: RunStatusName
    phase: Phase
    # All of it in a sentence.
    summary: str
    # Since when it is in this phase.
    since: datetime | None
    waits_for: WaitsFor
    # What happens if nobody does anything.
    by_itself: str | None
    # What would unblock or stop it, the likeliest first.
    unblock: list[HttpCall]
    stop_reason: StopReasonName | None
    error: ErrorMessage | None
    cancellation: Cancellation | None
    num_steps: int
    # Tries of the newest step that came to nothing, and how often a dead process left the run behind.
    failed_attempts: list[Attempt]
    recoveries: int
    # Whether a worker of the server that was asked carries the run.
    lease: Lease
    usage: TokenUsage
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
