"""What a run and its steps are. How a run may change is in ``lifecycle``."""

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
    """Where a run stands. The V1 wire knows fewer: see ``http/letta_v1/to_wire``."""

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
    """Tokens. None in the cache and reasoning fields means that the provider did not say."""

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
    """A tool that the caller runs itself; offered to the model for one request."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class RunRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the caller asked for besides the messages."""

    max_steps: int = DEFAULT_MAX_STEPS
    override_model: ModelChoice | None = None
    override_system: str | None = None
    client_tools: tuple[ClientTool, ...] = ()
    # Tell answers token by token rather than row by row.
    stream_tokens: bool = False
    include_pings: bool = True
    include_return_message_types: tuple[str, ...] | None = None
    include_compaction_messages: bool = False
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    callback_url: str | None = None
    budget: Budget | None = None
    # The agents that wait for this run's answer, the one that asked first of all first.
    asked_by: tuple[str, ...] = ()
    # Through how many agents the message came to this one.
    relayed: int = 0
    # How long a call waits for a person, and what becomes of it then: before what the agent's rules say.
    approval_timeout_seconds: float | None = None
    approval_on_timeout: OnTimeout | None = None
    # Where in a trace the request was, as W3C ``traceparent``, if anybody follows it.
    trace_parent: str | None = None
    # Nothing is asked of the model: the run only makes its thread's context smaller, by these settings.
    compaction: dict[str, Any] | None = None

    @property
    def trace_id(self) -> str | None:
        return self.trace_parent.split("-")[1] if self.trace_parent else None


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the loop must remember of a run that its rows do not say."""

    steps_taken: int = 0
    called: tuple[str, ...] = ()
    input_stored: bool = False
    # How often a dead process left this run behind.
    recoveries: int = 0
    # How full the window was after the last answer, or is by estimate since it was made smaller.
    context_tokens: int = 0
    # How the run ends once its context has been made smaller.
    ending: StopReason | None = None


class RunFailure(Struct, frozen=True, omit_defaults=True):
    """Why a run failed, in words for the caller. ``detail`` holds the original text."""

    kind: str
    message: str
    detail: str = ""
    # Where a person's answer is missing: the row that asks for it, and id and tool of each call.
    pending_request_id: str | None = None
    pending_calls: tuple[tuple[str, str], ...] = ()
    # Where our own code broke: kept with the step for whoever looks into the database, and never on the wire.
    traceback: str = ""


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
    # Of the steps whose price is known, in billionths of a US dollar (``money``).
    cost: int | None = None
    background: bool = False
    # What a repetition of the same request has in common with it; one run of a thread has it.
    request_key: str | None = None
    stop_reason: StopReason | None = None
    failure: RunFailure | None = None
    cancellation: Cancellation | None = None
    # What a paused run waits for: the row that asks a person, since when, and its first deadline.
    approval_id: str | None = None
    asked_at: datetime | None = None
    expires_at: datetime | None = None
    # What of the request's budget has run out, if that is why it ended.
    overrun: Overrun | None = None
    # What has come of telling the ``callback_url``; the store fills it in for whoever reads runs.
    callback: CallbackOutcome | None = None
    # What callers attached to the run; the engine never writes it.
    metadata: dict[str, Any] = {}
    # How many steps the run has, and the ids of the tools that it called.
    num_steps: int = 0
    tools_used: tuple[str, ...] = ()
    started_at: datetime | None = None
    completed_at: datetime | None = None
    total_duration_ns: int | None = None
    # From its creation to the first token of its first answer.
    ttft_ns: int | None = None
    project_id: str | None = None
    base_template_id: str | None = None
    last_event_seq: int = 0
    # Numbers up to here may have been shown to clients before they were durable: after a crash the
    # writer goes on above them, so that none is given twice.
    reserved_seq: int = 0

    @property
    def is_answer(self) -> bool:
        """The run was sent to answer calls that were held."""
        return any(row.decisions for row in self.input)

    @property
    def highest_seq(self) -> int:
        """The highest event number that anybody may have seen."""
        return max(self.last_event_seq, self.reserved_seq)


class Comparison(StrEnum):
    """How a stored number relates to the one that is asked about."""

    EQ = "eq"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"


class Bound(Struct, frozen=True):
    comparison: Comparison
    value: int


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs a list shows. Conditions combine with AND; None or () means any.

    A list that is sorted by duration, or asks for one, has only runs with a duration (wire-v1 §8.4).
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
    # Both ends are part of the range.
    start_date: datetime | None = None
    end_date: datetime | None = None
    step_count: Bound | None = None
    # Ids of tools; a run that called any of them is shown.
    tools_used: tuple[str, ...] = ()
    # In nanoseconds.
    duration: Bound | None = None
    # 0 to 100: only runs at least as long as this share of the runs of the same project, agents and statuses.
    duration_percentile: int | None = None


class StepStatus(StrEnum):
    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A try to get an answer from the model that came to nothing, and what its provider said."""

    number: int
    kind: str
    at: datetime
    detail: str = ""
    # How long is waited after it before the next try; None: there is none.
    wait_seconds: float | None = None


# Where a step comes from that answers nobody: it wrote a summary.
COMPACTION = "compaction"


class Step(Struct, frozen=True, kw_only=True):
    """One call of the model and the tools that its answer asked for."""

    id: str
    organization_id: str
    agent_id: str
    run_id: str
    model: ModelChoice
    created_at: datetime
    status: StepStatus = StepStatus.PENDING
    origin: str | None = None
    usage: Usage = Usage()
    # In billionths of a US dollar; None: not known.
    cost: int | None = None
    stop_reason: StopReason | None = None
    failure: RunFailure | None = None
    attempts: tuple[Attempt, ...] = ()
    feedback: str | None = None
    tags: tuple[str, ...] = ()
    # What callers say it was booked under.
    transaction_id: str | None = None
    project_id: str | None = None
    llm_request_ns: int | None = None
    tool_execution_ns: int | None = None
    step_ns: int | None = None
    # The trace that the run's request was part of, if anybody followed it.
    trace_id: str | None = None


class StepQuery(Struct, frozen=True, kw_only=True):
    page: Page
    agent_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    feedback: str | None = None
    has_feedback: bool | None = None
    tags: tuple[str, ...] = ()
    project_id: str | None = None
    trace_ids: tuple[str, ...] = ()
