"""Models (wire-v1 §2.10, §3.11). An item of a list repeats the whole old configuration."""

from typing import Any, Literal

from msgspec import Struct


class LlmConfig(Struct, frozen=True, kw_only=True):
    model: str
    model_endpoint_type: str
    context_window: int
    handle: str | None = None
    display_name: str | None = None
    model_endpoint: str | None = None
    model_wrapper: str | None = None
    provider_name: str | None = None
    provider_category: Literal["base", "byok"] | None = "base"
    temperature: float | None = 1.0
    max_tokens: int | None = None
    enable_reasoner: bool = True
    reasoning_effort: str | None = None
    max_reasoning_tokens: int = 0
    effort: str | None = None
    frequency_penalty: float | None = None
    compatibility_type: str | None = None
    verbosity: str | None = None
    tier: str | None = None
    parallel_tool_calls: bool = False
    put_inner_thoughts_in_kwargs: bool = False
    response_format: dict[str, Any] | None = None
    strict: bool = False
    return_logprobs: bool = False
    top_logprobs: int | None = None
    return_token_ids: bool = False
    tool_call_parser: str | None = None


class EmbeddingConfig(Struct, frozen=True, kw_only=True):
    embedding_model: str
    embedding_endpoint_type: str
    embedding_dim: int
    embedding_endpoint: str | None = None
    embedding_chunk_size: int | None = 300
    handle: str | None = None
    batch_size: int | None = 32
    azure_endpoint: str | None = None
    azure_version: str | None = None
    azure_deployment: str | None = None


class Model(LlmConfig, frozen=True, kw_only=True):
    name: str
    provider_type: str
    max_context_window: int
    model_type: Literal["llm"] = "llm"


class EmbeddingModel(EmbeddingConfig, frozen=True, kw_only=True):
    name: str
    display_name: str
    provider_type: str
    provider_name: str
    model_type: Literal["embedding"] = "embedding"
