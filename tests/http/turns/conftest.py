"""A house in which runs run: the real engine, a model that says what the test wrote down."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from httpx import AsyncClient
from tests.engine.rig import ScriptedPrices

from holdfast.core.messages import Outcome, Part, Text, Thinking, ToolCall, ToolReturn
from holdfast.core.runs import Usage
from holdfast.core.tools import Tool
from holdfast.core.turn import Finish, PlannedCall
from holdfast.engine.worker import Worker
from holdfast.ports.house import House, Limits
from holdfast.ports.model import (
    Answer,
    HiddenThinking,
    ModelEvent,
    Question,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from holdfast.ports.toolbox import BuiltinSpec, Toolbox, ToolContext

ROLL = '''
def roll(sides: int) -> str:
    """Roll a die.

    Args:
        sides (int): How many sides it has.
    """
    return "4"
'''


@dataclass(frozen=True)
class BrokenOff:
    text: str
    error: Exception


class ScriptedModel:
    """Gives the answers in order, word by word. While ``open`` is not set, it thinks; while ``fluent`` is
    not set, it hesitates after each delta but the first."""

    def __init__(self) -> None:
        self.script: deque[Answer | BrokenOff | Exception] = deque()
        self.fluent = asyncio.Event()
        self.fluent.set()
        self.questions: list[Question] = []
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    def says(self, *content: Part | str, calls: Sequence[ToolCall] = ()) -> None:
        parts = tuple(Text(part) if isinstance(part, str) else part for part in content)
        finish = Finish.TOOL_CALLS if calls else Finish.STOP
        usage = Usage(10, 2)
        self.script.append(
            Answer(content=parts, tool_calls=tuple(calls), usage=usage, finish=finish)
        )

    def fails(self, error: Exception, after: str = "") -> None:
        """Before its first word, or after these."""
        self.script.append(BrokenOff(after, error) if after else error)

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        self.questions.append(question)
        self.asked.set()
        await self.open.wait()
        answer = self.script.popleft()
        if isinstance(answer, Exception):
            raise answer
        yield self._told(answer)

    async def _told(self, answer: Answer | BrokenOff) -> AsyncIterator[ModelEvent]:
        if isinstance(answer, BrokenOff):
            for word in _words(answer.text):
                yield TextDelta(word)
            raise answer.error
        for delta in _deltas(answer):
            yield delta
            await self.fluent.wait()
        yield answer


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


class Dice:
    """Every tool returns 4."""

    def __init__(self, inner: Toolbox) -> None:
        self._inner = inner

    def builtin(self) -> Sequence[BuiltinSpec]:
        return self._inner.builtin()

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        return ToolReturn(planned.call.id, tool.name, Outcome.FINISHED, (Text("4"),))

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        return await self._inner.run_source(source, function, arguments, environment, requirements)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def prices() -> ScriptedPrices:
    return ScriptedPrices()


@pytest.fixture
def busy_wait_seconds() -> float:
    """How long a send waits for its turn; a test that waits for this to pass chooses less."""
    return 30.0


@pytest.fixture
async def house(
    house: House, model: ScriptedModel, prices: ScriptedPrices, busy_wait_seconds: float
) -> AsyncIterator[House]:
    working = replace(
        house,
        model=model,
        prices=prices,
        toolbox=Dice(house.toolbox),
        limits=Limits(busy_wait_seconds=busy_wait_seconds),
    )
    worker = asyncio.create_task(Worker(working).run())
    yield working
    worker.cancel()
    with suppress(asyncio.CancelledError):
        await worker


@pytest.fixture
async def agent_id(client: AsyncClient) -> str:
    body = {"name": "test", "model": "openai/gpt-x", "include_base_tools": False}
    created = await client.post("/v1/agents/", json=body)
    assert created.status_code == 200, created.text
    return str(created.json()["id"])


@pytest.fixture
async def roll_id(client: AsyncClient, agent_id: str) -> str:
    """The die, in the agent's hands."""
    tool = (await client.post("/v1/tools/", json={"source_code": ROLL})).json()
    attached = await client.patch(f"/v1/agents/{agent_id}/tools/attach/{tool['id']}")
    assert attached.status_code == 200, attached.text
    return str(tool["id"])


Send = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


@pytest.fixture
def send(client: AsyncClient, agent_id: str) -> Send:
    """Say something to the agent and expect an answer."""

    async def send(text: str = "hi", **wishes: Any) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": text}]} | wishes
        answer = await client.post(f"/v1/agents/{agent_id}/messages", json=body)
        assert answer.status_code == 200, answer.text
        reply: dict[str, Any] = answer.json()
        return reply

    return send
