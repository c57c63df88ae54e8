"""The events of an answer while it is streamed; they agree with the rows that will be stored."""

from collections.abc import Iterator

from holdfast.core.events import (
    CallStreamed,
    HiddenReasoningStreamed,
    ReasoningStreamed,
    Streamed,
    TextStreamed,
)
from holdfast.core.ids import sibling_id
from holdfast.core.pieces import PieceKind
from holdfast.core.turn import Policy
from holdfast.ports.model import (
    HiddenThinking,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)


def to_model_event(fact: Streamed) -> ModelEvent:
    """The model event that this fact was made from."""
    match fact:
        case ReasoningStreamed():
            return ThinkingDelta(fact.text)
        case TextStreamed():
            return TextDelta(fact.text)
        case HiddenReasoningStreamed():
            return HiddenThinking(fact.redacted, fact.data)
        case CallStreamed():
            return ToolCallDelta(fact.call_id, fact.name, fact.arguments)


class AnswerFacts:
    """Makes the facts of one answer. Held calls have their own row if the answer has automatic calls too. With parallel
    calls that is only known at the end of the answer, so held calls are deferred until then."""

    def __init__(self, message_id: str, step_id: str, policy: Policy) -> None:
        self._message_id = message_id
        self._step_id = step_id
        self._policy = policy
        self._piece = -1
        self._kind: PieceKind | None = None
        self._calls: set[str] = set()
        self._first_call: str | None = None
        self._has_automatic_calls = False
        self._deferred: list[ToolCallDelta] = []

    def facts_for(self, event: ModelEvent) -> Iterator[Streamed]:
        match event:
            case ThinkingDelta(text=text):
                yield ReasoningStreamed(
                    self._message_id, self._step_id, self._piece_index(PieceKind.REASONING), text
                )
            case TextDelta(text=text):
                yield TextStreamed(
                    self._message_id, self._step_id, self._piece_index(PieceKind.TEXT), text
                )
            case HiddenThinking(redacted=redacted, data=data):
                piece = self._piece_index(PieceKind.HIDDEN_REASONING)
                yield HiddenReasoningStreamed(
                    self._message_id, self._step_id, piece, redacted, data
                )
            case ToolCallDelta() if self._is_accepted(event):
                yield from self._on_call(event)

    def deferred_facts(self) -> Iterator[Streamed]:
        """The facts of the held calls, once the answer is complete."""
        row = sibling_id(self._message_id) if self._has_automatic_calls else self._message_id
        for delta in self._deferred:
            yield from self._call_facts(delta, row, held=True)

    def _on_call(self, delta: ToolCallDelta) -> Iterator[Streamed]:
        if delta.name not in self._policy.held:
            self._has_automatic_calls = True
            yield from self._call_facts(delta, self._message_id, held=False)
        elif self._policy.parallel:
            self._deferred.append(delta)
        else:
            yield from self._call_facts(delta, self._message_id, held=True)

    def _call_facts(self, delta: ToolCallDelta, row: str, *, held: bool) -> Iterator[Streamed]:
        """The first fact of a call has its name, the others its arguments (wire-v1 §4.5)."""
        piece = self._piece_index(PieceKind.HELD_CALLS if held else PieceKind.TOOL_CALLS)
        name, call_id = delta.name, delta.call_id
        if call_id not in self._calls:
            self._calls.add(call_id)
            yield CallStreamed(row, self._step_id, piece, call_id, name, held=held)
        if delta.arguments:
            yield CallStreamed(row, self._step_id, piece, call_id, name, delta.arguments, held)

    def _is_accepted(self, delta: ToolCallDelta) -> bool:
        """Only the first call unless parallel calls are allowed (wire-v1 §7.7)."""
        self._first_call = self._first_call or delta.call_id
        return self._policy.parallel or delta.call_id == self._first_call

    def _piece_index(self, kind: PieceKind) -> int:
        """The index of the current piece. A new one begins when the kind changes, and for each hidden reasoning."""
        if kind is not self._kind or kind is PieceKind.HIDDEN_REASONING:
            self._piece += 1
            self._kind = kind
        return self._piece
