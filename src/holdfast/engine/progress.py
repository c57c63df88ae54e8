"""How far an effect has come: what is true of it if it is interrupted now."""

import json
from collections.abc import Callable

from holdfast.core.messages import Part, Text, Thinking, ToolCall, ToolReturn
from holdfast.core.models import ModelChoice
from holdfast.core.runs import Usage, sum_known
from holdfast.core.steps import Attempt
from holdfast.ports.model import (
    Exchange,
    HiddenThinking,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)


class EffectProgress:
    """Filled by the effect as it goes. ``began`` has the calls whose tool was really started, ``returned``
    the results of those that are done."""

    def __init__(
        self,
        message_id: str,
        *,
        activity: str = "",
        agent_id: str | None = None,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        # The row that an answer will have, so that what is streamed names what will be stored.
        self.answer = PartialAnswer(message_id)
        self.started_calls: set[str] = set()
        self.results: dict[str, ToolReturn] = {}
        # What really went to the provider and came back, where that is kept.
        self.exchanges: list[Exchange] = []
        # What complete answers took that are not in the run's figures yet, and what the provider has counted of
        # the one that is under way; of whom they are, if not of the agent's own model.
        self.usage = Usage()
        self.cost: int | None = None
        self.partial_usage = Usage()
        self.choice: ModelChoice | None = None
        # What was tried in vain to get an answer.
        self.attempts: tuple[Attempt, ...] = ()
        # In words, for whoever asks why it takes so long.
        self.activity = activity
        self.agent_id = agent_id
        self._monotonic_ns = monotonic_ns
        self.progressed_at_ns = monotonic_ns()
        # When the first of the answer came.
        self.first_token_ns: int | None = None
        # How long it may be quiet on purpose, besides what is borne of everybody.
        self.expected_quiet_seconds = 0.0

    def record_progress(self, expected_quiet_seconds: float = 0.0) -> None:
        """It has got further, and may be quiet for so long now."""
        self.progressed_at_ns = self._monotonic_ns()
        self.expected_quiet_seconds = expected_quiet_seconds

    def on_event(self, event: ModelEvent) -> None:
        """The model has said more."""
        self.answer.add(event)
        self.record_progress()
        if self.first_token_ns is None:
            self.first_token_ns = self.progressed_at_ns

    def on_answer(self, usage: Usage, cost: int | None) -> None:
        """An answer is complete, and this is what it took."""
        self.usage += usage
        self.cost = sum_known(self.cost, cost)
        self.partial_usage = Usage()

    def reset_answer(self) -> None:
        """Forget an answer that was cut short: the model is asked again."""
        self.answer = PartialAnswer(self.answer.message_id)
        self.first_token_ns = None
        self.partial_usage = Usage()
        self.record_progress()


class PartialAnswer:
    """What the model has said until now."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self._parts: list[Part] = []
        # By call, in the order in which they began: their parts may come side by side.
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
        """Neighbours of one sort are one part; a hidden thought has no neighbours."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Text | Thinking) and type(last) is type(more) and last.text:
            self._parts[-1] = type(more)(last.text + more.text)
        else:
            self._parts.append(more)

    @property
    def is_empty(self) -> bool:
        return not (self._parts or self._calls)

    def content(self) -> tuple[Part, ...]:
        """What was said and thought; thinking without its signature is never sent back."""
        return tuple(self._parts)

    def calls(self, *, parallel: bool) -> tuple[ToolCall, ...]:
        """The calls that were complete. Where only one is wanted, the first (wire-v1 §7.7)."""
        wanted = list(self._calls.values())[: None if parallel else 1]
        return tuple(call for call in wanted if self._is_complete(call))

    def _is_complete(self, call: ToolCall) -> bool:
        """No beginning of a JSON object is one. A call without arguments is complete when the model has gone
        on to something else."""
        if not call.arguments:
            return call.id != self._last_call
        try:
            return isinstance(json.loads(call.arguments), dict)
        except ValueError:
            return False
