"""Runs and their steps. The allowed status changes of a run are in ``lifecycle``."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from holdfast.core.budgets import Budget, Overrun
from holdfast.core.callbacks import CallbackOutcome
from holdfast.core.cancellation import Cancellation
from holdfast.core.deadlines import OnTimeout
from holdfast.core.messages import Message
from holdfast.core.models import ModelChoice
from holdfast.core.paging import Page

DEFAULT_MAX_STEPS = 50


class RunStatus(StrEnum):
    """The status of a run. The V1 wire has fewer values: see ``http/letta_v1/to_wire``."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    PAUSED = "paused"
    ANSWERED = "answered"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StopReason(StrEnum):
    """Why a run ended (a closed set: wire-v1 §3.1)."""

    END_TURN = "end_turn"
    ERROR = "error"
    LLM_API_ERROR = "llm_api_error"
    INVALID_LLM_RESPONSE = "invalid_llm_response"
    INVALID_TOOL_CALL = "invalid_tool_call"
    MAX_STEPS = "max_steps"
    MAX_TOKENS_EXCEEDED = "max_tokens_exceeded"
    NO_TOOL_CALL = "no_tool_call"
    TOOL_RULE = "tool_rule"
    CANCELLED = "cancelled"
    INSUFFICIENT_CREDITS = "insufficient_credits"
    REQUIRES_APPROVAL = "requires_approval"
    CONTEXT_OVERFLOW = "context_window_overflow_in_system_prompt"


class Usage(Struct, frozen=True, omit_defaults=True):
    """Token counts. None in the cache and reasoning fields means that the provider did not report them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_input_tokens=sum_known(self.cached_input_tokens, other.cached_input_tokens),
            cache_write_tokens=sum_known(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=sum_known(self.reasoning_tokens, other.reasoning_tokens),
        )


def sum_known(left: int | None, right: int | None) -> int | None:
    if left is None and right is None:
        return None
    return (left or 0) + (right or 0)


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the client runs itself; offered to the model for one request."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class RunRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a send, besides its messages."""

    max_steps: int = DEFAULT_MAX_STEPS
    override_model: ModelChoice | None = None
    override_system: str | None = None
    client_tools: tuple[ClientTool, ...] = ()
    # Stream answers token by token rather than message by message.
    stream_tokens: bool = False
    include_pings: bool = True
    include_return_message_types: tuple[str, ...] | None = None
    include_compaction_messages: bool = False
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    callback_url: str | None = None
    budget: Budget | None = None
    # The agents that wait for this run's answer, the first sender first.
    asked_by: tuple[str, ...] = ()
    # How many agents the message came through.
    relayed: int = 0
    # The timeout of held calls and what happens then; takes precedence over the agent's rules.
    approval_timeout_seconds: float | None = None
    approval_on_timeout: OnTimeout | None = None
    # On whose behalf the message was sent. None: it was stored by a version that does not say.
    user_id: str | None = None
    # The W3C ``traceparent`` of the request, if it is traced.
    trace_parent: str | None = None
    # Set if the run only compacts its thread's context, with these settings.
    compaction: dict[str, Any] | None = None

    @property
    def trace_id(self) -> str | None:
        return self.trace_parent.split("-")[1] if self.trace_parent else None


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of the loop that cannot be derived from the run's messages."""

    steps_taken: int = 0
    called: tuple[str, ...] = ()
    input_stored: bool = False
    # How often the run was recovered after its process had died, since an effect of it was last stored.
    recoveries: int = 0
    # How many checkpoints the run has: each has its number, so that it is known whether it was stored.
    checkpoints: int = 0
    # The tokens in the window after the last answer, or an estimate since the last compaction.
    context_tokens: int = 0
    # The stop reason with which the run ends after its compaction.
    ending: StopReason | None = None


class RunFailure(Struct, frozen=True, omit_defaults=True):
    """Why a run failed, in a message for the caller. ``detail`` holds the original error text."""

    kind: str
    message: str
    detail: str = ""
    # If an approval is missing: the message that requests it, and id and tool name of each call.
    pending_request_id: str | None = None
    pending_calls: tuple[tuple[str, str], ...] = ()
    # The traceback of an internal error: stored with the step, never sent over the wire.
    traceback: str = ""


class IdempotencyKey(Struct, frozen=True):
    """A sender's own key for a request. ``fingerprint`` is a hash of the request: a retry has the same of both."""

    key: str
    fingerprint: str


class Run(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    agent_id: str
    thread_id: str
    status: RunStatus
    kind: str
    created_at: datetime
    input: tuple[Message, ...] = ()
    request: RunRequest = RunRequest()
    progress: Progress = Progress()
    usage: Usage = Usage()
    # The sum over the steps whose price is known, in billionths of a US dollar (``money``).
    cost: int | None = None
    background: bool = False
    # A key that is equal for retries of the same request; unique within a thread.
    request_key: str | None = None
    stop_reason: StopReason | None = None
    failure: RunFailure | None = None
    cancellation: Cancellation | None = None
    # For a paused run: the message that requests the approval, since when, and its first deadline.
    approval_id: str | None = None
    asked_at: datetime | None = None
    expires_at: datetime | None = None
    # The limit of the request's budget that was exceeded, if that ended the run.
    overrun: Overrun | None = None
    # The state of the request to ``callback_url``; the store fills it in when it loads runs.
    callback: CallbackOutcome | None = None
    # Metadata from callers; the engine never writes it.
    metadata: dict[str, Any] = {}
    # The number of steps, and the ids of the tools that were called.
    num_steps: int = 0
    tools_used: tuple[str, ...] = ()
    started_at: datetime | None = None
    completed_at: datetime | None = None
    total_duration_ns: int | None = None
    # Time to first token, from the creation of the run.
    ttft_ns: int | None = None
    project_id: str | None = None
    base_template_id: str | None = None
    last_event_seq: int = 0
    # Event numbers up to here may have been sent to clients before they were stored. After a crash the writer
    # continues above them, so that no number is used twice.
    reserved_seq: int = 0
    # The server that has claimed the run, or the last one that had; None: the run waits to be claimed. Each claim raises
    # ``fence``, and each write of the run carries it: the writes of an earlier owner are refused.
    owner_id: str | None = None
    fence: int = 0

    @property
    def is_answer(self) -> bool:
        """Whether the run was sent to answer held calls."""
        return any(row.decisions for row in self.input)

    @property
    def highest_seq(self) -> int:
        """The highest event number that a client may have received."""
        return max(self.last_event_seq, self.reserved_seq)


class Comparison(StrEnum):
    """How a stored number is compared with the number of a filter."""

    EQ = "eq"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"


class Bound(Struct, frozen=True):
    comparison: Comparison
    value: int


class RunQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of runs. Conditions combine with AND; None or () means any.

    A list that is sorted or filtered by duration has only runs with a duration (wire-v1 §8.4).
    """

    page: Page
    run_id: str | None = None
    agent_ids: tuple[str, ...] = ()
    thread_id: str | None = None
    statuses: tuple[RunStatus, ...] = ()
    stop_reason: StopReason | None = None
    background: bool | None = None
    project_id: str | None = None
    template_family: str | None = None
    # Both ends are inclusive.
    start_date: datetime | None = None
    end_date: datetime | None = None
    step_count: Bound | None = None
    # Ids of tools; matches runs that called any of them.
    tools_used: tuple[str, ...] = ()
    # In nanoseconds.
    duration: Bound | None = None
    # 0 to 100: only runs at least as long as this percentile of the runs of the same project, agents and statuses.
    duration_percentile: int | None = None
