"""The model of a test: it answers what the test has scripted, through the port ``Model``."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from tests.support.history import assert_calls_answered

from holdfast.core.messages import Part, Role, Text, Thinking, ToolCall
from holdfast.core.runs import Usage
from holdfast.core.turn import Finish
from holdfast.ports.model import (
    Answer,
    HiddenThinking,
    ModelEvent,
    Question,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)

# One moment of a stream: an event arrives, the stream waits until an asyncio.Event is set, or it fails.
Moment = ModelEvent | asyncio.Event | BaseException
Script = Answer | BaseException | Callable[[Question], Answer] | tuple[Moment, ...]


def text_answer(text: str = "Hello", finish: Finish = Finish.STOP) -> Answer:
    content = (Text(text),) if text else ()
    return Answer(content=content, tool_calls=(), usage=Usage(10, 5), finish=finish)


def call_answer(*calls: tuple[str, str]) -> Answer:
    """An answer that calls tools: pairs of call id and tool name."""
    return Answer(
        content=(),
        tool_calls=tuple(ToolCall(id=key, name=name, arguments="{}") for key, name in calls),
        usage=Usage(10, 5),
        finish=Finish.TOOL_CALLS,
    )


class ScriptedModel:
    """Answers in the order of the script; refuses a history with an unanswered call.

    ``gate`` holds back every answer while it is not set. ``stream_gate`` does so after each delta of an
    answer that ``says`` has scripted. ``otherwise`` answers once the script is used up; without it, that
    is an error.
    """

    def __init__(
        self, otherwise: Callable[[Question], Answer] | None = lambda _: text_answer()
    ) -> None:
        self.script: list[Script] = []
        self.otherwise = otherwise
        self.questions: list[Question] = []
        self.asked = asyncio.Event()
        self.gate = _set_event()
        self.stream_gate = _set_event()

    def says(self, *content: Part | str, calls: Sequence[ToolCall] = ()) -> None:
        """Script an answer that is streamed word by word."""
        answer = Answer(
            content=tuple(Text(part) if isinstance(part, str) else part for part in content),
            tool_calls=tuple(calls),
            usage=Usage(10, 2),
            finish=Finish.TOOL_CALLS if calls else Finish.STOP,
        )
        moments: list[Moment] = []
        for delta in _deltas(answer):
            moments += [delta, self.stream_gate]
        self.script.append((*moments, answer))

    def fails(self, error: BaseException, after: str = "") -> None:
        """Script a failure: before the first word, or after these."""
        words = [TextDelta(word) for word in _words(after)]
        self.script.append((*words, error) if words else error)

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        assert question.history[0].role is Role.SYSTEM
        assert_calls_answered(question.history)
        self.questions.append(question)
        self.asked.set()
        await self.gate.wait()
        answer = self._next_answer(question)
        if isinstance(answer, BaseException):
            raise answer
        yield _stream(answer if isinstance(answer, tuple) else (answer,))

    def _next_answer(self, question: Question) -> Answer | BaseException | tuple[Moment, ...]:
        if self.script:
            answer = self.script.pop(0)
        else:
            assert self.otherwise is not None, f"nothing is scripted for {question}"
            answer = self.otherwise
        if isinstance(answer, Answer | BaseException | tuple):
            return answer
        return answer(question)


class HangingModel(ScriptedModel):
    """Streams the given events, then nothing more, until the caller hangs up."""

    def __init__(self, *events: ModelEvent) -> None:
        super().__init__()
        self._events = events
        self.silent = asyncio.Event()
        self.hung_up = asyncio.Event()

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        self.questions.append(question)
        try:
            yield self.stream()
        finally:
            self.hung_up.set()

    async def stream(self) -> AsyncIterator[ModelEvent]:
        for event in self._events:
            yield event
        self.silent.set()
        await asyncio.Event().wait()


async def _stream(moments: tuple[Moment, ...]) -> AsyncIterator[ModelEvent]:
    for moment in moments:
        if isinstance(moment, asyncio.Event):
            await moment.wait()
        elif isinstance(moment, BaseException):
            raise moment
        else:
            # As with a socket: other tasks that are ready run between two tokens.
            await asyncio.sleep(0)
            yield moment


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def _deltas(answer: Answer) -> Iterator[ModelEvent]:
    for part in answer.content:
        match part:
            case Text(text=text):
                yield from map(TextDelta, _words(text))
            case Thinking(text=""):
                yield HiddenThinking(part.redacted, part.signature if part.redacted else None)
            case Thinking(text=text):
                yield from map(ThinkingDelta, _words(text))
    for call in answer.tool_calls:
        for fragment in ("", *_words(call.arguments)):
            yield ToolCallDelta(call.id, call.name, fragment)
