"""Runs and the tokens that they used (wire-v1 §3.5)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from holdfast.http.letta_v1.schemas.limits import JsonObject
from holdfast.http.letta_v1.schemas.messages import ApiMessage, StopReasonName
from holdfast.http.letta_v1.schemas.send import LenientModel

RunStatusName = Literal["created", "running", "completed", "failed", "cancelled"]


_CURSOR: JsonSchemaValue = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}


class ResumeBody(LenientModel):
    """From where to read a run. V1's ``poll_interval`` and ``batch_size`` have no effect."""

    # Any type, because a wrong cursor has its own error message.
    starting_after: Annotated[Any, WithJsonSchema(_CURSOR)] = 0
    include_pings: bool = True


class RunUpdate(BaseModel):
    """Not in V1: a caller's own metadata of a run."""

    model_config = ConfigDict(extra="forbid")

    metadata: JsonObject


class RequestConfig(Struct, frozen=True, kw_only=True):
    use_assistant_message: bool
    assistant_message_tool_name: str
    assistant_message_tool_kwarg: str
    include_return_message_types: list[str] | None


class Run(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str
    status: RunStatusName
    created_at: datetime
    completed_at: datetime | None
    stop_reason: StopReasonName | None
    background: bool
    conversation_id: str | None
    # ``run_type``, what callers added, and ``error`` (an ErrorMessage) if the run failed.
    metadata: dict[str, Any]
    request_config: RequestConfig
    callback_url: str | None
    callback_sent_at: datetime | None
    callback_status_code: int | None
    callback_error: str | None
    ttft_ns: int | None
    total_duration_ns: int | None
    base_template_id: str | None = None
    # Not in V1: what was sent, also for a run that ended before it stored anything.
    input: list[ApiMessage]


class RunMetrics(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str
    organization_id: str
    project_id: str | None
    template_id: str | None = None
    base_template_id: str | None = None
    run_start_ns: int
    run_ns: int | None
    num_steps: int
    tools_used: list[str] | None


class PromptTokensDetails(Struct, frozen=True, kw_only=True):
    """Providers call the same tokens ``cached`` or ``cache_read``. Both fields have the number."""

    cached_tokens: int | None
    cache_read_tokens: int | None
    cache_creation_tokens: int | None


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int | None


class TokenUsage(Struct, frozen=True, kw_only=True):
    """The usage in OpenAI's form. The answer to a send has another form."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None
    completion_tokens_details: CompletionTokensDetails | None
    # Not in V1: US dollars of the steps whose price is known, and the number of those whose price is not.
    cost: float | None
    unpriced_steps: int


class AgentCost(Struct, frozen=True, kw_only=True):
    """The cost of all steps of an agent whose price is known, in US dollars."""

    cost: float | None
    steps: int
    unpriced_steps: int
