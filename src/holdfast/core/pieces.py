"""How a row falls into pieces: what is shown, numbered and streamed of it one by one.

The V1 wire shows each piece as one API message; the event log counts pieces.
"""

from enum import StrEnum
from itertools import groupby

from msgspec import Struct

from holdfast.core.messages import Message, Part, Role, Text, Thinking, ToolCall


class PieceKind(StrEnum):
    TEXT = "words"
    REASONING = "thoughts"
    HIDDEN_REASONING = "hidden"
    TOOL_CALLS = "calls"
    # Calls that wait for a person.
    HELD_CALLS = "held"
    # Rows that are one thing: a user's words, results, decisions.
    MESSAGE = "whole"


class Piece(Struct, frozen=True):
    kind: PieceKind
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()


def pieces(row: Message) -> tuple[Piece, ...]:
    """In the order in which they are shown. Our own notes to the model are not shown at all."""
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
    """What the model said and thought: neighbours of one sort are one piece, hidden thoughts stay apart."""
    parts = [part for part in row.content if not (isinstance(part, Text) and not part.text)]
    found: list[Piece] = []
    for sort, group in groupby(parts, key=piece_kind):
        neighbours = tuple(group)
        if sort is PieceKind.HIDDEN_REASONING:
            found += [Piece(sort, (part,)) for part in neighbours]
        else:
            found.append(Piece(sort, neighbours))
    return tuple(found)


def piece_kind(part: Part) -> PieceKind:
    if not isinstance(part, Thinking):
        return PieceKind.TEXT
    return PieceKind.HIDDEN_REASONING if part.redacted or not part.text else PieceKind.REASONING
