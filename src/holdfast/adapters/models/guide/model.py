"""Streams the guide's answers word by word. What it answers is decided in ``plan``."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from secrets import token_hex

import msgspec

from holdfast.adapters.models.guide.plan import Call, CallTools, Count, Plan, Say, decide
from holdfast.core.messages import Text, ToolCall
from holdfast.core.runs import Usage
from holdfast.core.turn import Finish
from holdfast.ports.model import Answer, ModelEvent, Question, TextDelta, ToolCallDelta

# Slow enough to press a button while it counts.
COUNT_SECONDS = 0.3

# Of each message. To count the words of megabytes would stop other work.
_MAX_COUNTED_CHARS = 100_000

_WORD = re.compile(r"\s*\S+|\s+")


class Guide:
    def __init__(self, delay: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._delay = delay

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        async with aclosing(self._answer(question, decide(question))) as events:
            yield events

    async def _answer(self, question: Question, plan: Plan) -> AsyncGenerator[ModelEvent, None]:
        words: list[str] = []
        async with aclosing(self._stream_text(plan)) as pieces:
            async for piece in pieces:
                words.append(piece)
                yield TextDelta(piece)
        calls = tuple(_tool_calls(plan))
        for call in calls:
            yield ToolCallDelta(call.id, call.name, call.arguments)
        text = "".join(words)
        yield Answer(
            content=(Text(text),) if text else (),
            tool_calls=calls,
            usage=_usage(question, text),
            finish=Finish.TOOL_CALLS if calls else Finish.STOP,
        )

    async def _stream_text(self, plan: Plan) -> AsyncGenerator[str, None]:
        match plan:
            case Count(first=first, last=last):
                for number in range(first, last + 1):
                    yield f"{number}{'.' if number == last else ', '}"
                    if number != last:
                        await self._delay(COUNT_SECONDS)
            case Say(text=text) | CallTools(text=text):
                for word in _WORD.findall(text):
                    yield word


def _tool_calls(plan: Plan) -> Iterator[ToolCall]:
    planned: tuple[Call, ...] = plan.calls if isinstance(plan, CallTools) else ()
    for call in planned:
        arguments = msgspec.json.encode(call.arguments).decode()
        yield ToolCall(f"call_{token_hex(4)}", call.name, arguments)


def _usage(question: Question, text: str) -> Usage:
    """A script has no tokens, so words are counted: a newcomer sees usage that grows."""
    prompt_words = sum(len(row.text[:_MAX_COUNTED_CHARS].split()) for row in question.history)
    return Usage(prompt_tokens=prompt_words, completion_tokens=len(text.split()))
