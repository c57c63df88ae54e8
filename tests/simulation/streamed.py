"""Checks that the streamed pieces of an answer are the stored ones."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from holdfast.core.events import (
    CallStreamed,
    Fact,
    HiddenReasoningStreamed,
    ReasoningStreamed,
    TextStreamed,
)
from holdfast.core.messages import Message, Text, Thinking
from holdfast.core.pieces import Piece, PieceKind, pieces
from holdfast.core.runs import Run, RunStatus

_KINDS = {
    TextStreamed: PieceKind.TEXT,
    ReasoningStreamed: PieceKind.REASONING,
    HiddenReasoningStreamed: PieceKind.HIDDEN_REASONING,
}


def assert_streamed_is_stored(run: Run, facts: Iterable[Fact], rows: Sequence[Message]) -> None:
    """Only a failed run may have streamed something that is not stored."""
    if run.status is RunStatus.FAILED:
        return
    said: dict[tuple[str, int], tuple[PieceKind, str]] = {}
    calls: dict[str, dict[str, str]] = defaultdict(lambda: defaultdict(str))
    for fact in facts:
        if isinstance(fact, CallStreamed):
            calls[fact.message_id][fact.call_id] += fact.arguments
        elif isinstance(fact, TextStreamed | ReasoningStreamed | HiddenReasoningStreamed):
            key = (fact.message_id, fact.piece)
            sort, before = said.get(key, (_KINDS[type(fact)], ""))
            assert sort is _KINDS[type(fact)], f"piece {key} is of two sorts"
            said[key] = (sort, before + getattr(fact, "text", ""))
    stored = {row.id: row for row in rows}
    for (row_id, number), shown in said.items():
        assert row_id in stored, f"{shown} was shown and {row_id} is not stored"
        found = pieces(stored[row_id])
        assert number < len(found), f"{shown} was shown as piece {number} of {found}"
        assert _piece_text(found[number]) == shown, f"{shown} was shown, {found[number]} is stored"
    if run.status is not RunStatus.CANCELLED:
        for row_id, told in calls.items():
            assert row_id in stored, f"{dict(told)} were shown and {row_id} is not stored"
            kept = {call.id: call.arguments for call in stored[row_id].tool_calls}
            assert kept == told, f"{dict(told)} were shown, {kept} are stored"
    elif run.request.stream_tokens:
        kept = {call.id: call.arguments for row in rows for call in row.tool_calls}
        told = {key: text for row in calls.values() for key, text in row.items()}
        wrong = {key: text for key, text in kept.items() if key in told and told[key] != text}
        assert not wrong, f"{told} were shown, {kept} are stored"


def _piece_text(piece: Piece) -> tuple[PieceKind, str]:
    texts = [part.text for part in piece.parts if isinstance(part, Text | Thinking)]
    return piece.kind, "" if piece.kind is PieceKind.HIDDEN_REASONING else "".join(texts)
