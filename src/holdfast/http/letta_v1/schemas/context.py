"""How full a context window is, and messages in their stored form (wire-v1 §3.13)."""

from datetime import datetime
from typing import Any

from msgspec import Struct


class ContextWindowOverview(Struct, frozen=True, kw_only=True):
    context_window_size_max: int
    context_window_size_current: int
    num_messages: int
    num_recall_memory: int
    num_tokens_system: int
    system_prompt: str
    num_tokens_core_memory: int
    core_memory: str
    num_tokens_tool_usage_rules: int
    tool_usage_rules: str | None
    num_tokens_external_memory_summary: int
    external_memory_summary: str
    num_tokens_summary_memory: int
    summary_memory: str | None
    num_tokens_functions_definitions: int
    functions_definitions: list[dict[str, Any]]
    num_tokens_messages: int
    messages: list["InternalMessage"]
    num_archival_memory: int
    # Not supported yet: always empty.
    num_tokens_memory_filesystem: int = 0
    memory_filesystem: str | None = None
    num_tokens_directories: int = 0
    directories: str | None = None


class InternalMessage(Struct, frozen=True, kw_only=True):
    """A row as V1 stored it."""

    id: str
    role: str
    content: list[dict[str, Any]]
    agent_id: str
    tool_calls: list[dict[str, Any]] | None
    tool_call_id: str | None
    tool_returns: list[dict[str, Any]]
    approvals: list[dict[str, Any]] | None
    run_id: str | None
    step_id: str | None
    conversation_id: str | None
    otid: str | None
    name: str | None
    sender_id: str | None
    group_id: str | None
    model: str | None
    created_at: datetime
    is_err: bool | None = None
    batch_item_id: str | None = None
