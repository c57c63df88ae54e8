"""Steps as V1 shows them (wire-v1 §3.6)."""

from collections.abc import Sequence
from typing import Any

from holdfast.core.steps import Attempt, Step
from holdfast.core.traces import ProviderTrace
from holdfast.http.letta_v1.schemas import steps as wire
from holdfast.http.letta_v1.to_wire.model_settings import llm_config
from holdfast.http.letta_v1.to_wire.replies import error_type
from holdfast.http.letta_v1.to_wire.runs import (
    completion_details,
    dollars,
    epoch_ns,
    prompt_details,
)


def api_step(step: Step) -> wire.Step:
    usage = step.usage
    return wire.Step(
        id=step.id,
        run_id=step.run_id,
        agent_id=step.agent_id,
        organization_id=step.organization_id,
        origin=step.origin,
        provider_name=step.model.provider,
        model=step.model.name,
        model_handle=step.model.handle,
        context_window_limit=step.model.context_window,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        cost=dollars(step.cost),
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        prompt_tokens_details=prompt_details(usage),
        completion_tokens_details=completion_details(usage),
        status=step.status,
        stop_reason=step.stop_reason,
        error_type=error_type(step.failure.kind) if step.failure else None,
        error_data=_error_data(step),
        feedback=step.feedback,
        tags=list(step.tags),
        tid=step.transaction_id,
        trace_id=step.trace_id,
        project_id=step.project_id,
        attempts=[_attempt(item) for item in step.attempts],
    )


def _attempt(attempt: Attempt) -> wire.Attempt:
    return wire.Attempt(
        number=attempt.number,
        error_type=error_type(attempt.kind),
        detail=attempt.detail or None,
        at=attempt.at,
        wait_seconds=attempt.wait_seconds,
    )


def step_metrics(step: Step) -> wire.StepMetrics:
    started = epoch_ns(step.created_at)
    return wire.StepMetrics(
        id=step.id,
        run_id=step.run_id,
        agent_id=step.agent_id,
        organization_id=step.organization_id,
        step_start_ns=started,
        # A step is stored right before its model is called.
        llm_request_start_ns=None if step.llm_request_ns is None else started,
        llm_request_ns=step.llm_request_ns,
        tool_execution_ns=step.tool_execution_ns,
        step_ns=step.step_ns,
        project_id=step.project_id,
    )


def provider_trace(trace: ProviderTrace, agent_tags: Sequence[str]) -> wire.ProviderTrace:
    return wire.ProviderTrace(
        id=trace.id,
        org_id=trace.organization_id,
        agent_id=trace.agent_id,
        run_id=trace.run_id,
        step_id=trace.step_id,
        agent_tags=list(agent_tags),
        call_type=trace.call_type,
        llm_config=llm_config(trace.model),
        request_json=trace.request,
        response_json=trace.response,
        latency_ms=trace.latency_ms,
        status_code=trace.status_code,
        error=trace.error,
        created_at=trace.created_at,
    )


def _error_data(step: Step) -> dict[str, Any] | None:
    if step.failure is None:
        return None
    return {"message": step.failure.message, "details": step.failure.detail or None}
