"""How far an effect has come while it runs, and the result that it ends with."""

from collections.abc import Callable

from msgspec import Struct

from holdfast.core.json_depth import load_json
from holdfast.core.messages import Part, Text, Thinking, ToolCall, ToolReturn
from holdfast.core.models import ModelChoice
from holdfast.core.runs import Usage, sum_known
from holdfast.core.steps import Attempt, Step
from holdfast.core.turn import EndTurn
from holdfast.engine.state import State
from holdfast.ports.model import (
    Exchange,
    HiddenThinking,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)


class EffectProgress:
    """Filled by the effect while it runs, so that an interruption knows what there is to keep."""

    def __init__(
        self,
        message_id: str = "",
        *,
        activity: str = "",
        agent_id: str | None = None,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        # It has the id of the row that will be stored, so that streamed events name that row.
        self.answer = PartialAnswer(message_id)
        # The calls whose tool was started, and the results of those that have returned.
        self.started_calls: set[str] = set()
        self.results: dict[str, ToolReturn] = {}
        # The names of the tools that were run by other tools.
        self.used_by_tools: set[str] = set()
        # The provider's requests and responses, if the server is set to keep them.
        self.exchanges: list[Exchange] = []
        # The usage of complete answers that is not added to the run yet, and what the provider has reported of the
        # current one; ``choice`` is the model that they belong to, if not the agent's own.
        self.usage = Usage()
        self.cost: int | None = None
        self.partial_usage = Usage()
        self.choice: ModelChoice | None = None
        # The failed attempts to get an answer.
        self.attempts: tuple[Attempt, ...] = ()
        # For log lines and error texts about an effect that takes too long.
        self.activity = activity
        self.agent_id = agent_id
        self._monotonic_ns = monotonic_ns
        self.progressed_at_ns = monotonic_ns()
        self.first_token_ns: int | None = None
        # How long the effect may show no progress on purpose, in addition to the general limit.
        self.expected_quiet_seconds = 0.0

    def record_progress(self, expected_quiet_seconds: float = 0.0) -> None:
        """The effect has progressed now; the next progress may take this long."""
        self.progressed_at_ns = self._monotonic_ns()
        self.expected_quiet_seconds = expected_quiet_seconds

    def on_event(self, event: ModelEvent) -> None:
        """Add a part of the model's answer."""
        self.answer.add(event)
        self.record_progress()
        if self.first_token_ns is None:
            self.first_token_ns = self.progressed_at_ns

    def on_answer(self, usage: Usage, cost: int | None) -> None:
        """Add the usage of a complete answer."""
        self.usage += usage
        self.cost = sum_known(self.cost, cost)
        self.partial_usage = Usage()

    def reset_answer(self) -> None:
        """Drop an incomplete answer: the model is asked again."""
        self.answer = PartialAnswer(self.answer.message_id)
        self.first_token_ns = None
        self.partial_usage = Usage()
        self.record_progress()


class EffectResult(Struct, frozen=True):
    """The state that the next checkpoint stores: after an effect, or as a claim or a recovery loaded it."""

    state: State
    progress: EffectProgress
    # Set if the effect did not complete: the run must end, and how.
    end: EndTurn | None = None
    # An error ended the effect, rather than an interruption: its partial answer is dropped, and the outcome of
    # calls without a result is unknown.
    has_failed: bool = False
    # A step of a dead process that a recovery has closed.
    closed_step: Step | None = None


class PartialAnswer:
    """The part of an answer that has arrived so far."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self._parts: list[Part] = []
        # By call id, in the order in which the calls began: parts of several calls may alternate.
        self._calls: dict[str, ToolCall] = {}
        self._last_call: str | None = None

    def add(self, event: ModelEvent) -> None:
        self._last_call = event.call_id if isinstance(event, ToolCallDelta) else None
        match event:
            case ThinkingDelta(text=text):
                self._extend(Thinking(text))
            case TextDelta(text=text):
                self._extend(Text(text))
            case HiddenThinking(redacted=redacted):
                self._parts.append(Thinking("", redacted=redacted))
            case ToolCallDelta(call_id=call_id, name=name, arguments=arguments):
                before = self._calls.get(call_id)
                text = before.arguments if before else ""
                self._calls[call_id] = ToolCall(call_id, name, text + arguments)

    def _extend(self, more: Text | Thinking) -> None:
        """Append to the last part if it is of the same kind; hidden reasoning always stays separate."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Text | Thinking) and type(last) is type(more) and last.text:
            self._parts[-1] = type(more)(last.text + more.text)
        else:
            self._parts.append(more)

    @property
    def is_empty(self) -> bool:
        return not (self._parts or self._calls)

    def content(self) -> tuple[Part, ...]:
        """Text and reasoning. Reasoning without its signature is never sent back to the provider."""
        return tuple(self._parts)

    def calls(self, *, parallel: bool) -> tuple[ToolCall, ...]:
        """The complete calls; only the first call unless parallel calls are allowed (wire-v1 §7.7)."""
        wanted = list(self._calls.values())[: None if parallel else 1]
        return tuple(call for call in wanted if self._is_complete(call))

    def _is_complete(self, call: ToolCall) -> bool:
        """A part of a JSON object is never a JSON object itself. A call without arguments is complete once the model
        has continued with something else."""
        if not call.arguments:
            return call.id != self._last_call
        try:
            return isinstance(load_json(call.arguments), dict)
        except ValueError:
            return False
