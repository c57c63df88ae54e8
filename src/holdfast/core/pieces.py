"""How a row falls into pieces: what is shown, numbered and streamed of it one by one.

The V1 wire shows each piece as one API message; the event log counts pieces.
"""

from enum import StrEnum
from itertools import groupby

from msgspec import Struct

from holdfast.core.messages import Message, Part, Role, Text, Thinking, ToolCall


class Sort(StrEnum):
    WORDS = "words"
    THOUGHTS = "thoughts"
    HIDDEN = "hidden"
    CALLS = "calls"
    # Calls that wait for a person.
    HELD = "held"
    # Rows that are one thing: a user's words, results, decisions.
    WHOLE = "whole"


class Piece(Struct, frozen=True):
    sort: Sort
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()


def pieces(row: Message) -> tuple[Piece, ...]:
    """In the order in which they are shown. Our own notes to the model are not shown at all."""
    if row.hidden:
        return ()
    if row.role is Role.ASSISTANT:
        calls = (Piece(Sort.CALLS, calls=row.tool_calls),) if row.tool_calls else ()
        return _said(row) + calls
    if row.role is Role.APPROVAL and row.tool_calls:
        return (*_said(row), Piece(Sort.HELD, calls=row.tool_calls))
    if row.role is Role.TOOL and not row.tool_returns:
        return ()
    return (Piece(Sort.WHOLE, row.content),)


def _said(row: Message) -> tuple[Piece, ...]:
    """What the model said and thought: neighbours of one sort are one piece, hidden thoughts stay apart."""
    parts = [part for part in row.content if not (isinstance(part, Text) and not part.text)]
    found: list[Piece] = []
    for sort, group in groupby(parts, key=sort_of):
        neighbours = tuple(group)
        if sort is Sort.HIDDEN:
            found += [Piece(sort, (part,)) for part in neighbours]
        else:
            found.append(Piece(sort, neighbours))
    return tuple(found)


def sort_of(part: Part) -> Sort:
    if not isinstance(part, Thinking):
        return Sort.WORDS
    return Sort.HIDDEN if part.redacted or not part.text else Sort.THOUGHTS
