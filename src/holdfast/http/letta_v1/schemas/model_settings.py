"""The settings of a model that a caller may send (wire-v1 §3.11).

One schema has the settings of all providers, and refuses fields that no provider has. An old full configuration was
written by a V1 server: its unknown fields are kept, and the answer warns of them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.http.letta_v1.schemas import limits

# What a PostgreSQL integer holds.
_MAX_INTEGER = 2**31 - 1
Positive = Annotated[int, Field(ge=1, le=_MAX_INTEGER)]
Count = Annotated[int, Field(ge=0, le=_MAX_INTEGER)]
# For a number whose limit has an answer of its own (memory-v1 §5.7).
LargeCount = Annotated[int, Field(ge=0, le=2**63 - 1)]

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
# The widest range of all providers.
Temperature = Annotated[float, Field(ge=0, le=2)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class OpenModel(BaseModel):
    """Unknown fields are kept, up to a number."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"maxProperties": limits.MAX_OBJECT_KEYS}
    )

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > limits.MAX_OBJECT_KEYS:
            raise ValueError(f"an object may have at most {limits.MAX_OBJECT_KEYS} fields")
        return value


class ResponseFormatInput(OpenModel):
    """``json_schema`` is {name, schema, strict}. Only the type of the same name has it."""

    type: Literal["text", "json_schema", "json_object"]
    json_schema: limits.JsonObject | None = None

    @model_validator(mode="after")
    def _require_schema(self) -> Self:
        if self.type == "json_schema" and not self.json_schema:
            raise ValueError("a response format of type json_schema needs its json_schema")
        return self


class ReasoningInput(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reasoning_effort: ReasoningEffort | None = None


class ThinkingInput(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["enabled", "disabled"] | None = None
    budget_tokens: Count | None = None
    clear_thinking: bool | None = None


class ThinkingConfigInput(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_thoughts: bool | None = None
    thinking_budget: Count | None = None


class ModelSettingsInput(BaseModel):
    model_config = ConfigDict(extra="forbid")

    provider_type: str | None = None
    max_output_tokens: Positive | None = None
    parallel_tool_calls: bool | None = None
    temperature: Temperature | None = None
    reasoning: ReasoningInput | None = None
    thinking: ThinkingInput | None = None
    thinking_config: ThinkingConfigInput | None = None
    effort: Effort | None = None
    verbosity: Verbosity | None = None
    response_format: ResponseFormatInput | None = None
    response_schema: ResponseFormatInput | None = None
    strict: bool | None = None
    frequency_penalty: Penalty | None = None
    tool_call_parser: str | None = None


class LlmConfigInput(OpenModel):
    """The old full configuration. ``model_endpoint`` is used if the operator allowed it."""

    model: str
    model_endpoint_type: str
    context_window: Positive
    model_endpoint: str | None = None
    handle: str | None = None
    temperature: Temperature | None = None
    max_tokens: Positive | None = None
    parallel_tool_calls: bool | None = None
    enable_reasoner: bool | None = None
    max_reasoning_tokens: Count | None = None
    reasoning_effort: ReasoningEffort | None = None
    effort: Effort | None = None
    verbosity: Verbosity | None = None
    response_format: ResponseFormatInput | None = None
    strict: bool | None = None
    frequency_penalty: Penalty | None = None
    # These describe the model and do not change how it is called.
    display_name: str | None = None
    provider_name: str | None = None
    provider_category: Literal["base", "byok"] | None = None
    tier: str | None = None
    compatibility_type: str | None = None
    model_wrapper: str | None = None
    # Only V1's own agent loops and model servers used these.
    put_inner_thoughts_in_kwargs: bool | None = None
    return_logprobs: bool | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None
    tool_call_parser: str | None = None


class EmbeddingConfigInput(OpenModel):
    embedding_model: str
    embedding_endpoint_type: str
    embedding_dim: Positive
    embedding_endpoint: str | None = None
    embedding_chunk_size: Count | None = None
    handle: str | None = None
    batch_size: Positive | None = None


class CompactionInput(BaseModel):
    """How a context is compacted. Fields that are left out get their defaults (wire-v1 §7.9)."""

    model_config = ConfigDict(extra="ignore")

    mode: (
        Literal["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"] | None
    ) = None
    model: str | None = None
    model_settings: ModelSettingsInput | None = None
    prompt: str | None = None
    prompt_acknowledgement: bool | None = None
    clip_chars: Count | None = None
    sliding_window_percentage: Annotated[float, Field(ge=0, le=1)] | None = None
