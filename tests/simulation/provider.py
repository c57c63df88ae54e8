"""The model and the tools of a scenario: at random they answer, fail, are slow or are interrupted."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from msgspec.structs import replace
from tests.simulation.chance import Chance, InjectedError
from tests.simulation.hosts import HOST
from tests.simulation.ledger import Ledger

from holdfast.core.messages import Outcome, Part, Role, Text, Thinking, ToolCall, ToolReturn
from holdfast.core.runs import Usage
from holdfast.core.tools import Tool
from holdfast.core.traces import CallType
from holdfast.core.turn import Finish, PlannedCall
from holdfast.errors import ContextWindowExceeded, ModelOverloaded, ModelTimedOut
from holdfast.ports.model import (
    Answer,
    HiddenThinking,
    ModelEvent,
    Question,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

# What a client may offer to run itself.
CLIENT_TOOL = "mine"
TOOLS = ("fast_a", "fast_b", "slow_a", "slow_b", "held_a", "held_b")
HELD = (*(name for name in TOOLS if name.startswith("held")), CLIENT_TOOL)
# No question leads to more rounds of tools than this.
MOST_ROUNDS = 3


class Provider:
    def __init__(self, chance: Chance, ledger: Ledger) -> None:
        self._chance = chance
        self._ledger = ledger

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        thread_id = question.history[0].thread_id
        host = HOST.get()
        self._ledger.record_question(host, thread_id, question.history)
        try:
            await self._chance.pause()
            if self._chance.happens(0.06):
                raise ModelOverloaded("before the first token", transient=self._chance.happens(0.7))
            if self._chance.happens(0.05):
                raise ContextWindowExceeded("too long")
            yield self._stream(question)
        finally:
            # To hang up takes a moment too, and may be interrupted.
            try:
                for _ in range(self._chance.random.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                self._ledger.asking.discard((host, thread_id))

    async def _stream(self, question: Question) -> AsyncIterator[ModelEvent]:
        for event in self._plan_events(question):
            await self._chance.pause()
            if self._chance.happens(0.02):
                raise ModelTimedOut("in mid-stream")
            if self._chance.happens(0.01):
                raise InjectedError("a bug of the bridge")
            if self._chance.happens(0.02):
                return
            if isinstance(event, Answer):
                # What follows are a checkpoint and, often, the start of tools.
                self._chance.may_pause(HOST.get(), 0.15 if event.tool_calls else 0.02)
            else:
                self._chance.may_pause(HOST.get(), 0.02)
            yield event

    def _plan_events(self, question: Question) -> list[ModelEvent]:
        """The deltas of an answer, and the complete answer."""
        chance, random = self._chance, self._chance.random
        if chance.happens(0.04):
            return [_answer([], [])]
        if question.call_type is CallType.SUMMARIZATION:
            return [TextDelta("They "), TextDelta("talked."), _answer([Text("They talked.")], [])]
        events: list[ModelEvent] = []
        content: list[Part] = []
        calls: list[ToolCall] = []
        if chance.happens(0.1):
            events.append(HiddenThinking(redacted=True, data="sealed"))
            content.append(Thinking("", redacted=True))
        if chance.happens(0.3):
            events += [ThinkingDelta("Hm, "), ThinkingDelta("well.")]
            content.append(Thinking("Hm, well."))
        probability = 0.9 if chance.prefers_tools else 0.65
        wants_tools = chance.happens(probability) and _rounds(question) < MOST_ROUNDS
        if not wants_tools or chance.happens(0.4):
            words = [f"{random.randrange(100)} " for _ in range(random.randint(1, 3))]
            events += [TextDelta(word) for word in words]
            content.append(Text("".join(words)))
        if wants_tools:
            calls = self._calls(question)
            events += _deltas(calls, random)
        answer = _answer(content, calls, length=chance.happens(0.05))
        if chance.happens(0.1):
            answer = replace(answer, usage=Usage(question.choice.context_window, 5))
        return [*events, answer]

    def _calls(self, question: Question) -> list[ToolCall]:
        chance, random = self._chance, self._chance.random
        names = [offer.name for offer in question.tools]
        if chance.prefers_held_tools and chance.happens(0.7):
            names = [name for name in names if name in HELD] or names
        elif chance.prefers_tools:
            names = [name for name in names if name not in HELD]
        names += ["unheard_of"] * chance.happens(0.05)
        # A provider may give several calls where only one is wanted.
        several = question.parallel_tool_calls or chance.happens(0.2)
        count = random.randint(1, 3) if several else 1
        return [
            ToolCall(
                chance.call_id(), random.choice(names), '{"cut' if chance.happens(0.05) else "{}"
            )
            for _ in range(count)
        ]


def _rounds(question: Question) -> int:
    """How many rows of results follow the last message."""
    count = 0
    for row in reversed(question.history):
        if row.role is Role.USER:
            break
        count += row.role is Role.TOOL
    return count


def _deltas(calls: Sequence[ToolCall], random: Random) -> list[ModelEvent]:
    """The deltas of the calls, one call after the other or alternating."""
    heads: list[ModelEvent] = []
    tails: list[ModelEvent] = []
    side_by_side = random.random() < 0.2
    for call in calls:
        head = ToolCallDelta(call.id, call.name, call.arguments[:1])
        tail = ToolCallDelta(call.id, call.name, call.arguments[1:])
        heads.append(head)
        (tails if side_by_side else heads).append(tail)
    return heads + tails


def _answer(content: list[Part], calls: list[ToolCall], *, length: bool = False) -> Answer:
    finish = Finish.TOOL_CALLS if calls else Finish.LENGTH if length else Finish.STOP
    return Answer(
        content=tuple(content), tool_calls=tuple(calls), usage=Usage(10, 5), finish=finish
    )


class Toolbox:
    def __init__(self, chance: Chance, ledger: Ledger) -> None:
        self._chance = chance
        self._ledger = ledger

    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        return []

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        call_id = planned.call.id
        if self._chance.happens(0.02):
            # The sandbox could not start it.
            return ToolReturn(call_id, tool.name, Outcome.NOT_STARTED, (Text("no process"),))
        self._ledger.tool_begins(HOST.get(), call_id, tool.name, context.run_id)
        try:
            await self._work()
        except asyncio.CancelledError:
            try:
                for _ in range(self._chance.random.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                self._ledger.tool_dies(call_id)
            raise
        if self._chance.happens(0.04):
            self._ledger.tool_breaks(call_id)
            raise InjectedError("a bug of the toolbox")
        if self._chance.has_outages and self._chance.happens(0.3):
            # The most delicate moment: the result is there, and the store is not.
            self._ledger.note(f"{self._chance.begin_outage()}, as {call_id} returns")
        self._chance.may_pause(HOST.get(), 0.1)
        outcome = Outcome.FAILED if self._chance.happens(0.2) else Outcome.FINISHED
        self._ledger.tool_returns(call_id, outcome)
        return ToolReturn(call_id, tool.name, outcome, (Text("done"),))

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        raise NotImplementedError

    async def _work(self) -> None:
        if self._chance.happens(0.3):
            # Longer than anybody waits for a cancel, or for a turn; or than two leases.
            await asyncio.sleep(10 if self._chance.has_peers else 25)
        elif self._chance.happens(0.3):
            await asyncio.sleep(self._chance.random.uniform(0.5, 5))
        else:
            await self._chance.pause()
