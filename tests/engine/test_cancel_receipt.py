"""What a cancel says about the calls and the words it cut short is true, whenever it comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import pytest
from msgspec import structs
from tests.doubles.model import HangingModel, ScriptedModel, call_answer
from tests.doubles.toolbox import HangingToolbox
from tests.support.engine_runs import assert_cancelled, facts_of, use_model, wait_until_set
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.core.agents import Agent
from holdfast.core.cancellation import Cancellation
from holdfast.core.events import CallStreamed, HiddenReasoningStreamed, TextStreamed
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import Message, Outcome, ToolReturn
from holdfast.core.pieces import PieceKind, pieces
from holdfast.core.runs import Run
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.engine.interruption import Interrupted, Interruption
from holdfast.engine.progress import EffectProgress
from holdfast.engine.worker import Worker
from holdfast.ports.model import HiddenThinking, ModelEvent, Question, TextDelta, ToolCallDelta
from holdfast.ports.services import Services
from holdfast.ports.store import Store, Transaction
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import runs

T = TypeVar("T")


async def cancel_after(rig: Rig, agent: Agent, *events: ModelEvent) -> tuple[Run, Message]:
    """A run that was cancelled when the model had said so much, and the row that is left of it."""
    model = HangingModel(*events)
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        await wait_until_set(model.silent)
        await runs.cancel(rig.services, ACTOR, run.id)
    rows = [row for row in await rig.context(agent) if row.model is not None]
    return run, rows[-1]


async def test_a_second_trigger_while_the_effect_stops_does_no_harm() -> None:
    interruption = Interruption()
    open_now, winding_down, wound_down = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def effect() -> None:
        async with interruption.scope(EffectProgress("message-1")):
            try:
                open_now.set()
                await asyncio.Event().wait()
            finally:
                winding_down.set()
                await wound_down.wait()

    task = asyncio.create_task(effect())
    await wait_until_set(open_now)
    interruption.trigger()
    await wait_until_set(winding_down)
    interruption.trigger()
    wound_down.set()
    with pytest.raises(Interrupted):
        await asyncio.wait_for(task, WAIT_SECONDS)


async def test_cancelling_again_while_the_provider_hangs_up_leaves_the_worker_alive(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await rig.make_agent()
    hanging_up, hung_up, struck_again = asyncio.Event(), asyncio.Event(), asyncio.Event()
    strike = Interruption.trigger

    def record_trigger(interruption: Interruption) -> None:
        if hanging_up.is_set():
            struck_again.set()
        strike(interruption)

    monkeypatch.setattr(Interruption, "trigger", record_trigger)

    class SlowToHangUp(HangingModel):
        @asynccontextmanager
        async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
            try:
                yield self.stream()
            finally:
                hanging_up.set()
                await hung_up.wait()

    model = SlowToHangUp(TextDelta("Well"))
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        first = asyncio.create_task(runs.cancel(rig.services, ACTOR, run.id))
        await wait_until_set(hanging_up)
        second = asyncio.create_task(runs.cancel(rig.services, ACTOR, run.id))
        # The second bell is heard before the effect is over.
        await wait_until_set(struck_again)
        hung_up.set()
        await asyncio.wait_for(asyncio.gather(first, second), WAIT_SECONDS)
        use_model(rig, ScriptedModel())
        await rig.wait_for_end(run)
    await assert_cancelled(rig, agent, run)


async def test_the_receipt_says_of_each_call_what_its_result_says(rig: Rig) -> None:
    agent = await rig.make_agent("slow_a", "slow_hang", "slow_c")
    toolbox = HangingToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "slow_a"), ("c2", "slow_hang"), ("c3", "slow_c"))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(toolbox.hanging)
        ended = await runs.cancel(rig.services, ACTOR, run.id)
    assert ended.cancellation is not None
    assert ended.cancellation.calls == {
        "c1": Outcome.FINISHED,
        "c2": Outcome.KILLED,
        "c3": Outcome.NOT_STARTED,
    }


class SlowSaveStore:
    """Lets nothing be put on record before the gate is open; whoever goes away changes nothing."""

    def __init__(self, store: Store, gate: asyncio.Event) -> None:
        self._store = store
        self._gate = gate
        self.waiting = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if "_save_result" not in getattr(work, "__qualname__", ""):
            return await self._store.write(work)
        task = asyncio.create_task(self._write_when_open(work))
        return await asyncio.shield(task)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...

    async def _write_when_open(self, work: Callable[[Transaction], T]) -> T:
        self.waiting.set()
        await self._gate.wait()
        return await self._store.write(work)


async def test_a_result_that_is_being_put_on_record_is_kept_and_comes_before_the_end(
    rig: Rig,
) -> None:
    """Else it would be written after its call was closed, and the thread would wait for it for ever."""
    agent = await rig.make_agent("slow_a", "slow_b")
    gate = asyncio.Event()
    store = SlowSaveStore(rig.services.store, gate)
    rig.services = replace(rig.services, store=store)
    rig.model.script = [call_answer(("c1", "slow_a"), ("c2", "slow_b"))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(store.waiting)
        cancelling = asyncio.create_task(runs.cancel(rig.services, ACTOR, run.id))
        await asyncio.wait([cancelling], timeout=0.2)
        gate.set()
        ended = await asyncio.wait_for(cancelling, WAIT_SECONDS)
    assert ended.cancellation is not None
    assert ended.cancellation.calls == {"c1": Outcome.FINISHED, "c2": Outcome.NOT_STARTED}
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []


class CancellingToolbox(HangingToolbox):
    """Is struck after a tool has returned and before anybody could take its result."""

    trigger: Callable[[str], None]

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        result = await super().run(tool, planned, context)
        await self.services.store.write(lambda tx: _mark(tx, context.run_id or ""))
        self.trigger(context.run_id or "")
        return result

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services


def _mark(tx: Transaction, run_id: str) -> None:
    run = tx.runs.get(ACTOR.organization_id, run_id)
    receipt = Cancellation(requested_at=run.created_at, requested_by=ACTOR.user_id)
    tx.runs.transition(structs.replace(run, cancellation=receipt), Signal.CANCEL)


async def test_the_result_of_a_tool_that_has_returned_is_kept(rig: Rig) -> None:
    agent = await rig.make_agent("fast_a")
    toolbox = CancellingToolbox(rig.services)
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "fast_a"))]
    worker = Worker(rig.services)
    toolbox.trigger = lambda run_id: worker._live[run_id].trigger()
    task = asyncio.create_task(worker.run())
    ended = await rig.wait_for_end(await rig.submit(agent))
    task.cancel()
    await asyncio.wait([task])
    assert ended.cancellation is not None
    assert ended.cancellation.calls == {"c1": Outcome.FINISHED}
    assert (await rig.context(agent))[-1].tool_returns[0].outcome is Outcome.FINISHED


async def test_a_hidden_thought_keeps_its_place_in_what_is_left(rig: Rig) -> None:
    agent = await rig.make_agent()
    hidden = HiddenThinking(redacted=True, data="sealed")
    run, row = await cancel_after(rig, agent, hidden, TextDelta("Once"))
    told = [
        (fact.message_id, fact.piece)
        for fact in await facts_of(rig, run)
        if isinstance(fact, HiddenReasoningStreamed | TextStreamed)
    ]
    assert told == [(row.id, 0), (row.id, 1)]
    assert [piece.kind for piece in pieces(row)] == [PieceKind.HIDDEN_REASONING, PieceKind.TEXT]


async def test_calls_that_come_side_by_side_are_kept_whole_or_not_at_all(rig: Rig) -> None:
    agent = await rig.make_agent("roll", "flip")
    deltas = [
        ToolCallDelta("c1", "roll", '{"a"'),
        ToolCallDelta("c2", "flip", "{"),
        ToolCallDelta("c1", "roll", ": 1}"),
        ToolCallDelta("c2", "flip", '"b'),
    ]
    run, row = await cancel_after(rig, agent, *deltas)
    assert [(call.id, call.arguments) for call in row.tool_calls] == [("c1", '{"a": 1}')]
    await assert_cancelled(rig, agent, run)


async def test_nothing_is_left_of_a_second_call_that_was_not_requested(rig: Rig) -> None:
    agent = await rig.make_agent("roll", "flip", parallel=False)
    deltas = [ToolCallDelta("c1", "roll", "{}"), ToolCallDelta("c2", "flip", "{}")]
    run, row = await cancel_after(rig, agent, *deltas, TextDelta("so"))
    assert [call.id for call in row.tool_calls] == ["c1"]
    shown = [fact for fact in await facts_of(rig, run) if isinstance(fact, CallStreamed)]
    assert {fact.call_id for fact in shown} == {"c1"}
