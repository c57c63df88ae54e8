"""An answer as it streams, told in facts that agree with the rows that will be stored."""

from collections.abc import Iterator

from holdfast.core.events import (
    CallStreamed,
    HiddenThoughtStreamed,
    Streamed,
    TextStreamed,
    ThoughtStreamed,
)
from holdfast.core.ids import sibling_id
from holdfast.core.pieces import Sort
from holdfast.core.turn import Policy
from holdfast.ports.model import (
    HiddenThinking,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)


def heard(fact: Streamed) -> ModelEvent:
    """What the model must have said for this to be told."""
    match fact:
        case ThoughtStreamed():
            return ThinkingDelta(fact.text)
        case TextStreamed():
            return TextDelta(fact.text)
        case HiddenThoughtStreamed():
            return HiddenThinking(fact.redacted, fact.data)
        case CallStreamed():
            return ToolCallDelta(fact.call_id, fact.name, fact.arguments)


class AnswerFacts:
    """Held calls stand in a row of their own if the answer has automatic calls too. With parallel calls that
    is only known at its end, so they are told then: a person can answer them no sooner anyway."""

    def __init__(self, message_id: str, step_id: str, policy: Policy) -> None:
        self._message_id = message_id
        self._step_id = step_id
        self._policy = policy
        self._piece = -1
        self._sort: Sort | None = None
        self._calls: set[str] = set()
        self._kept_call: str | None = None
        self._automatic = False
        self._held_back: list[ToolCallDelta] = []

    def of(self, event: ModelEvent) -> Iterator[Streamed]:
        match event:
            case ThinkingDelta(text=text):
                yield ThoughtStreamed(
                    self._message_id, self._step_id, self._at(Sort.THOUGHTS), text
                )
            case TextDelta(text=text):
                yield TextStreamed(self._message_id, self._step_id, self._at(Sort.WORDS), text)
            case HiddenThinking(redacted=redacted, data=data):
                piece = self._at(Sort.HIDDEN)
                yield HiddenThoughtStreamed(self._message_id, self._step_id, piece, redacted, data)
            case ToolCallDelta() if self._is_kept(event):
                yield from self._call(event)

    def rest(self) -> Iterator[Streamed]:
        """What could not be told before the answer was complete."""
        row = sibling_id(self._message_id) if self._automatic else self._message_id
        for delta in self._held_back:
            yield from self._told(delta, row, held=True)

    def _call(self, delta: ToolCallDelta) -> Iterator[Streamed]:
        if delta.name not in self._policy.held:
            self._automatic = True
            yield from self._told(delta, self._message_id, held=False)
        elif self._policy.parallel:
            self._held_back.append(delta)
        else:
            yield from self._told(delta, self._message_id, held=True)

    def _told(self, delta: ToolCallDelta, row: str, *, held: bool) -> Iterator[Streamed]:
        """First who is called, then with what (wire-v1 §4.5)."""
        piece = self._at(Sort.HELD if held else Sort.CALLS)
        name, call_id = delta.name, delta.call_id
        if call_id not in self._calls:
            self._calls.add(call_id)
            yield CallStreamed(row, self._step_id, piece, call_id, name, held=held)
        if delta.arguments:
            yield CallStreamed(row, self._step_id, piece, call_id, name, delta.arguments, held)

    def _is_kept(self, delta: ToolCallDelta) -> bool:
        """Where only one call is wanted, the first is kept (wire-v1 §7.7)."""
        self._kept_call = self._kept_call or delta.call_id
        return self._policy.parallel or delta.call_id == self._kept_call

    def _at(self, sort: Sort) -> int:
        """The place of the piece: a new one whenever the sort changes; hidden thoughts stay apart."""
        if sort is not self._sort or sort is Sort.HIDDEN:
            self._piece += 1
            self._sort = sort
        return self._piece
