"""The pieces of a row: the parts of it that are shown, numbered and streamed separately.

The V1 wire shows each piece as one API message. Events refer to a piece by its index.
"""

from enum import StrEnum
from itertools import groupby

from msgspec import Struct

from holdfast.core.messages import Message, Part, Role, Text, Thinking, ToolCall


class PieceKind(StrEnum):
    TEXT = "text"
    REASONING = "reasoning"
    HIDDEN_REASONING = "hidden_reasoning"
    TOOL_CALLS = "tool_calls"
    # Calls that wait for a person.
    HELD_CALLS = "held_calls"
    # Rows that are not split: a user's message, results, decisions.
    MESSAGE = "message"


class Piece(Struct, frozen=True):
    kind: PieceKind
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()


def pieces(row: Message) -> tuple[Piece, ...]:
    """The pieces in the order in which they are shown. Hidden messages to the model have none."""
    if row.hidden:
        return ()
    if row.role is Role.ASSISTANT:
        calls = (Piece(PieceKind.TOOL_CALLS, calls=row.tool_calls),) if row.tool_calls else ()
        return _content_pieces(row) + calls
    if row.role is Role.APPROVAL and row.tool_calls:
        return (*_content_pieces(row), Piece(PieceKind.HELD_CALLS, calls=row.tool_calls))
    if row.role is Role.TOOL and not row.tool_returns:
        return ()
    return (Piece(PieceKind.MESSAGE, row.content),)


def _content_pieces(row: Message) -> tuple[Piece, ...]:
    """Text and reasoning: adjacent parts of one kind are one piece, but each hidden reasoning is its own."""
    parts = [part for part in row.content if not (isinstance(part, Text) and not part.text)]
    found: list[Piece] = []
    for kind, group in groupby(parts, key=piece_kind):
        adjacent = tuple(group)
        if kind is PieceKind.HIDDEN_REASONING:
            found += [Piece(kind, (part,)) for part in adjacent]
        else:
            found.append(Piece(kind, adjacent))
    return tuple(found)


def piece_kind(part: Part) -> PieceKind:
    if not isinstance(part, Thinking):
        return PieceKind.TEXT
    return PieceKind.HIDDEN_REASONING if part.redacted or not part.text else PieceKind.REASONING
