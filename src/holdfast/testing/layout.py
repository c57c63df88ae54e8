"""Groups an answer's parts into blocks, the same for every wire. Pure.

Parts of one kind in a row, with only interruptions between them, are one block: a gate in the
middle of a text does not split it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.testing.script import (
    Answer,
    Gate,
    Hang,
    HangUp,
    HttpError,
    Part,
    Pause,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
)

Interruption: TypeAlias = Pause | Gate | HangUp | Hang | HttpError
Content: TypeAlias = Text | Thinking | RedactedThinking | ToolCall


@dataclass(slots=True)
class Block:
    """One block: its whole content; and its flow, the pieces to stream with the interruptions between them."""

    content: Content
    flow: list[str | Interruption]

    @property
    def interruptions(self) -> list[Interruption]:
        return [step for step in self.flow if not isinstance(step, str)]


@dataclass(slots=True)
class Layout:
    """The blocks of an answer, and the interruptions before the first of them."""

    before: list[Interruption]
    blocks: list[Block]

    @property
    def interruptions(self) -> Iterator[Interruption]:
        yield from self.before
        for block in self.blocks:
            yield from block.interruptions


def lay_out(answer: Answer) -> Layout:
    layout = Layout([], [])
    for part in answer.parts:
        last = layout.blocks[-1] if layout.blocks else None
        if isinstance(part, Interruption):
            (layout.before if last is None else last.flow).append(part)
        elif last is not None and (joined := _join(last.content, part)) is not None:
            last.content = joined
            last.flow.extend(_stream_steps(part))
        else:
            layout.blocks.append(Block(part, list(_stream_steps(part))))
    return layout


def _join(first: Content, second: Part) -> Content | None:
    match first, second:
        case (Text(), Text()):
            return Text(first.text + second.text)
        case (Thinking(), Thinking()):
            return Thinking(first.text + second.text, second.signature)
        case _:
            return None


def _stream_steps(part: Content) -> Iterator[str | Interruption]:
    match part:
        case Text() | Thinking():
            for piece in part.pieces:
                if part.delay_seconds:
                    yield Pause(part.delay_seconds)
                yield piece
        case ToolCall():
            yield from part.fragments
        case RedactedThinking():
            return
