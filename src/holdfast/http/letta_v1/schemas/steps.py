"""Steps, and feedback on them (wire-v1 §3.6)."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from holdfast.core.steps import StepStatus
from holdfast.core.traces import CallType
from holdfast.http.letta_v1.schemas.limits import Tags
from holdfast.http.letta_v1.schemas.messages import StopReasonName
from holdfast.http.letta_v1.schemas.models import LlmConfig
from holdfast.http.letta_v1.schemas.runs import CompletionTokensDetails, PromptTokensDetails

Feedback = Literal["positive", "negative"]


class Attempt(Struct, frozen=True, kw_only=True):
    """A failed call of the model, and how long the next one was delayed, if there was one."""

    number: int
    error_type: str
    detail: str | None
    at: datetime
    wait_seconds: float | None


class Step(Struct, frozen=True, kw_only=True):
    id: str
    run_id: str
    agent_id: str
    organization_id: str
    origin: str | None = None
    provider_id: str | None = None
    provider_name: str
    provider_category: str = "base"
    model: str
    model_handle: str
    model_endpoint: str | None = None
    context_window_limit: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    # Not in V1: US dollars; null if the price of the model is not known.
    cost: float | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    prompt_tokens_details: PromptTokensDetails | None
    completion_tokens_details: CompletionTokensDetails | None
    status: StepStatus
    stop_reason: StopReasonName | None
    error_type: str | None
    error_data: dict[str, Any] | None
    feedback: str | None
    tags: list[str]
    tid: str | None
    trace_id: str | None = None
    request_id: str | None = None
    project_id: str | None
    # Empty since V1 moved them to ``/v1/steps/{step_id}/messages``.
    messages: tuple[()] = ()
    # Not in V1: failed calls of the model (wire-v1 §5.8).
    attempts: list[Attempt]


class StepMetrics(Struct, frozen=True, kw_only=True):
    id: str
    run_id: str
    agent_id: str
    provider_id: str | None = None
    organization_id: str
    step_start_ns: int
    llm_request_start_ns: int | None
    llm_request_ns: int | None
    tool_execution_ns: int | None
    step_ns: int | None
    template_id: str | None = None
    base_template_id: str | None = None
    project_id: str | None


class ProviderTrace(Struct, frozen=True, kw_only=True):
    id: str
    org_id: str
    agent_id: str
    run_id: str
    step_id: str
    agent_tags: list[str]
    call_type: CallType
    llm_config: LlmConfig
    compaction_settings: dict[str, Any] | None = None
    billing_context: None = None
    source: str = "holdfast"
    request_json: dict[str, Any]
    response_json: dict[str, Any]
    latency_ms: int
    # Not in V1: the status of the provider's answer, and the error.
    status_code: int | None
    error: str | None
    created_at: datetime


class FeedbackBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    feedback: Feedback | None = None
    tags: Tags | None = None
