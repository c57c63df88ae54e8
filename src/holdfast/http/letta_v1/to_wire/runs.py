"""Runs and their tokens as V1 shows them (wire-v1 §3.5, §5.2)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.core.callbacks import CallbackOutcome
from holdfast.core.messages import conversation_id
from holdfast.core.money import NANOS_PER_DOLLAR
from holdfast.core.prices import Costs
from holdfast.core.runs import Run, RunStatus, Usage
from holdfast.http.letta_v1.schemas import runs as wire
from holdfast.http.letta_v1.schemas.cancel import Outcome
from holdfast.http.letta_v1.to_wire.messages import api_listing
from holdfast.http.letta_v1.to_wire.replies import error_message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# V1 has no status for a run that waits for an approval: it is completed, and its stop reason says why.
STATUSES: Final[dict[RunStatus, wire.RunStatusName]] = {
    RunStatus.QUEUED: "created",
    RunStatus.RUNNING: "running",
    RunStatus.CANCELLING: "running",
    RunStatus.PAUSED: "completed",
    RunStatus.ANSWERED: "completed",
    RunStatus.COMPLETED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
}


def api_run(run: Run) -> wire.Run:
    request = run.request
    types = request.include_return_message_types
    callback = run.callback or CallbackOutcome()
    return wire.Run(
        id=run.id,
        agent_id=run.agent_id,
        status=STATUSES[run.status],
        created_at=run.created_at,
        completed_at=run.completed_at,
        stop_reason=run.stop_reason,
        background=run.background,
        conversation_id=conversation_id(run.thread_id, run.agent_id),
        metadata=_metadata(run),
        request_config=wire.RequestConfig(
            use_assistant_message=request.use_assistant_message,
            assistant_message_tool_name=request.assistant_message_tool_name,
            assistant_message_tool_kwarg=request.assistant_message_tool_kwarg,
            include_return_message_types=None if types is None else list(types),
        ),
        callback_url=request.callback_url,
        callback_sent_at=callback.sent_at,
        callback_status_code=callback.status_code,
        callback_error=callback.error,
        ttft_ns=run.ttft_ns,
        total_duration_ns=run.total_duration_ns,
        base_template_id=run.base_template_id,
        input=api_listing(run.input),
    )


def run_metrics(run: Run) -> wire.RunMetrics:
    return wire.RunMetrics(
        id=run.id,
        agent_id=run.agent_id,
        organization_id=run.organization_id,
        project_id=run.project_id,
        base_template_id=run.base_template_id,
        run_start_ns=epoch_ns(run.created_at),
        run_ns=run.total_duration_ns,
        num_steps=run.num_steps,
        tools_used=list(run.tools_used) or None,
    )


def token_usage(usage: Usage, costs: Costs) -> wire.TokenUsage:
    return wire.TokenUsage(
        completion_tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=prompt_details(usage),
        completion_tokens_details=completion_details(usage),
        cost=dollars(costs.cost),
        unpriced_steps=costs.unpriced,
    )


def agent_cost(costs: Costs) -> wire.AgentCost:
    return wire.AgentCost(
        cost=dollars(costs.cost), steps=costs.steps, unpriced_steps=costs.unpriced
    )


def dollars(nanos: int | None) -> float | None:
    return None if nanos is None else nanos / NANOS_PER_DOLLAR


def prompt_details(usage: Usage) -> wire.PromptTokensDetails | None:
    if usage.cached_input_tokens is None and usage.cache_write_tokens is None:
        return None
    return wire.PromptTokensDetails(
        cached_tokens=usage.cached_input_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_creation_tokens=usage.cache_write_tokens,
    )


def completion_details(usage: Usage) -> wire.CompletionTokensDetails | None:
    if usage.reasoning_tokens is None:
        return None
    return wire.CompletionTokensDetails(usage.reasoning_tokens)


def epoch_ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000


def _metadata(run: Run) -> dict[str, Any]:
    shown: dict[str, Any] = {**run.metadata, "run_type": run.kind}
    if run.kind == "send_message_async":
        # V1 wrote the name of its job runner here.
        shown.setdefault("lettuce", None)
    if run.failure is not None:
        shown["error"] = error_message(run.id, run.failure)
    if run.cancellation is not None:
        shown["cancellation"] = run.cancellation
    if run.overrun is not None:
        shown["budget"] = run.overrun
    return shown


def cancel_outcomes(done: Mapping[str, bool]) -> dict[str, Outcome]:
    return {run_id: "cancelled" if ok else "failed" for run_id, ok in done.items()}
