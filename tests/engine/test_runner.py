"""The loop with its real store: what a run leaves behind."""

import asyncio
from dataclasses import replace

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, Rig

from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.events import Streamed
from holdfast.core.messages import CallState, Outcome, Role, ToolReturn
from holdfast.core.paging import Page
from holdfast.core.runs import RunStatus, StopReason
from holdfast.core.steps import StepQuery, StepStatus
from holdfast.core.tools import Tool
from holdfast.core.turn import Finish, PlannedCall
from holdfast.errors import ModelRateLimited, PendingApproval, ThreadBusy
from holdfast.ports.model import TextDelta, ThinkingDelta
from holdfast.ports.services import Limits
from holdfast.ports.toolbox import ToolContext
from holdfast.testing import FakeClock
from holdfast.usecases import steps


async def test_a_plain_turn_stores_what_was_said_and_ends(rig: Rig) -> None:
    agent = await rig.make_agent()
    async with rig.run_worker():
        reply = await rig.say(agent, "Hello?")
    assert [row.role for row in reply.messages] == [Role.ASSISTANT]
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert [row.role for row in await rig.context(agent)] == [
        Role.SYSTEM,
        Role.USER,
        Role.ASSISTANT,
    ]


async def test_tools_run_between_two_questions(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll")), text_answer("You rolled.")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert [row.role for row in reply.messages] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert reply.ended.step_count == 2
    assert reply.ended.usage.total_tokens == 30
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []


async def test_the_call_is_on_record_before_its_tool_starts(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll"))]
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(agent)
        await asyncio.wait_for(rig.toolbox.running.wait(), 20)
        (call,) = await rig.read(lambda tx: tx.calls.list_open(agent.id))
        assert call.state is CallState.STARTED
        assert (await rig.context(agent))[-1].tool_calls == (call.call,)
        rig.toolbox.gate.set()
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED


async def test_what_people_think_of_a_step_while_it_is_taken_stays(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll"))]
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(agent)
        await asyncio.wait_for(rig.toolbox.running.wait(), 20)
        (call,) = await rig.read(lambda tx: tx.calls.list_open(agent.id))
        await steps.set_feedback(rig.services, ACTOR, call.step_id, "positive", ("good",))
        rig.toolbox.gate.set()
        await rig.wait_for_end(run)
    step = await steps.retrieve(rig.services, ACTOR, call.step_id)
    assert (step.feedback, step.tags) == ("positive", ("good",))
    assert (step.status, step.usage.total_tokens) == (StepStatus.SUCCESS, 15)


async def test_a_run_knows_how_long_its_first_token_took(rig: Rig) -> None:
    clock = FakeClock()
    rig.services = replace(rig.services, clock=clock)
    agent = await rig.make_agent("roll")
    first, then = asyncio.Event(), asyncio.Event()
    rig.model.script = [
        (first, ThinkingDelta("Hm"), then, TextDelta("I roll."), call_answer(("c1", "roll"))),
        (TextDelta("Four."), text_answer("Four.")),
    ]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        await asyncio.wait_for(rig.model.asked.wait(), 20)
        clock.advance(2)
        first.set()
        async with asyncio.timeout(20):
            async for batch in rig.services.events.follow(run.id):
                if any(isinstance(event.fact, Streamed) for event in batch):
                    break
        clock.advance(3)
        then.set()
        ended = await rig.wait_for_end(run)
    assert ended.ttft_ns == 2_000_000_000
    assert ended.total_duration_ns == 5_000_000_000


@pytest.mark.wire(139)
async def test_the_step_is_on_record_before_the_model_is_asked(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(agent)
        await asyncio.wait_for(rig.model.asked.wait(), 20)
        (step,) = await rig.read(lambda tx: tx.steps.list_pending(run.id))
        assert step.status is StepStatus.PENDING
        rig.model.gate.set()
        await rig.wait_for_end(run)
    query = StepQuery(page=Page(limit=10), run_id=run.id)
    (step,) = await rig.read(lambda tx: tx.steps.list(ACTOR.organization_id, query))
    assert step.status is StepStatus.SUCCESS
    assert step.stop_reason is StopReason.END_TURN


async def test_a_failure_in_the_first_step_leaves_the_history_as_it_was(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.script = [ModelRateLimited("slow down")]
    async with rig.run_worker():
        reply = await rig.say(agent, "lost?")
        run = await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, reply.run.id))
        assert run.status is RunStatus.FAILED
        assert run.failure is not None
        assert (run.failure.kind, run.failure.detail) == ("llm_rate_limit", "slow down")
        assert run.input[0].text == "lost?"
        assert [row.role for row in await rig.context(agent)] == [Role.SYSTEM]
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


async def test_a_failure_after_a_tool_keeps_the_tools_result(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll")), ModelRateLimited("slow down")]
    async with rig.run_worker():
        reply = await rig.say(agent)
        assert reply.ended.status is RunStatus.FAILED
        assert_calls_answered(await rig.context(agent))
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


async def test_a_broken_toolbox_fails_the_run_and_answers_its_calls(rig: Rig) -> None:
    agent = await rig.make_agent("fast_a", "slow_b")
    rig.model.script = [call_answer(("c1", "fast_a"), ("c2", "slow_b"))]
    rig.toolbox.faults = {"slow_b": ZeroDivisionError("oops")}
    async with rig.run_worker():
        reply = await rig.say(agent)
        assert reply.ended.stop_reason is StopReason.ERROR
        rows = await rig.context(agent)
        assert_calls_answered(rows)
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN
    outcomes = {item.call_id: item.outcome for item in rows[-1].tool_returns}
    assert outcomes == {"c1": Outcome.FINISHED, "c2": Outcome.UNKNOWN}


async def test_an_empty_answer_to_a_user_is_an_error(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.script = [text_answer("")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.INVALID_LLM_RESPONSE


async def test_a_model_with_nothing_to_add_after_a_tool_ends_the_turn(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll")), text_answer("")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert [row.role for row in reply.messages] == [Role.ASSISTANT, Role.TOOL]


async def test_only_the_first_call_is_kept_where_parallel_calls_are_off(rig: Rig) -> None:
    agent = await rig.make_agent("a", "b", parallel=False)
    rig.model.script = [call_answer(("c1", "a"), ("c2", "b")), text_answer()]
    async with rig.run_worker():
        await rig.say(agent)
    assert rig.toolbox.started == ["c1"]


async def test_results_stand_in_the_order_of_the_calls(rig: Rig) -> None:
    agent = await rig.make_agent("slow_a", "fast_b", "fast_c")
    rig.model.script = [
        call_answer(("c1", "slow_a"), ("c2", "fast_b"), ("c3", "fast_c")),
        text_answer(),
    ]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert [item.call_id for item in reply.messages[1].tool_returns] == ["c1", "c2", "c3"]


async def test_the_step_budget_ends_the_run(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer((f"c{number}", "roll")) for number in range(5)]
    async with rig.run_worker():
        reply = await rig.say(agent, max_steps=2)
    assert reply.ended.stop_reason is StopReason.MAX_STEPS
    assert len(rig.model.questions) == 2
    assert reply.messages[-1].role is Role.TOOL


async def test_a_cut_answer_is_kept_and_the_run_says_so(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.script = [text_answer("half a sen", Finish.LENGTH)]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.MAX_TOKENS_EXCEEDED
    assert reply.messages[0].text == "half a sen"


async def test_a_nudge_is_in_the_history_but_hidden(rig: Rig) -> None:
    agent = await rig.make_agent("roll", rules=(rules.RequiredBeforeExit(tool_name="roll"),))
    rig.model.script = [text_answer("done?"), call_answer(("c1", "roll")), text_answer("done")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert [row.hidden for row in await rig.context(agent)] == [False] * 3 + [True] + [False] * 3


async def test_an_agent_that_clears_its_buffer_sees_only_the_system_message(rig: Rig) -> None:
    agent = await rig.make_agent(message_buffer_autoclear=True)
    async with rig.run_worker():
        await rig.say(agent, "one")
        await rig.say(agent, "two")
    roles = [row.role for row in rig.model.questions[-1].history]
    assert roles == [Role.SYSTEM, Role.USER]
    assert len(await rig.context(agent)) == 3


async def test_sends_to_one_thread_take_turns(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        first = await rig.submit(agent, "one")
        second = await rig.submit(agent, "two")
        await asyncio.wait_for(rig.model.asked.wait(), 20)
        waiting = await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, second.id))
        assert waiting.status is RunStatus.QUEUED
        rig.model.gate.set()
        await rig.wait_for_end(first)
        await rig.wait_for_end(second)
    texts = [row.text for row in await rig.context(agent)][1:]
    assert texts == ["one", "Hello", "two", "Hello"]


async def test_a_send_that_waits_too_long_is_taken_back_without_a_trace(rig: Rig) -> None:
    rig = Rig(rig.services.store, Limits(busy_wait_seconds=0.01))
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        first = await rig.submit(agent, "one")
        await asyncio.wait_for(rig.model.asked.wait(), 20)
        with pytest.raises(ThreadBusy) as refused:
            await rig.say(agent, "two")
        assert refused.value.run_id == first.id
        live = await rig.read(lambda tx: [run.id for run in tx.runs.list_live()])
        assert live == [first.id]
        rig.model.gate.set()
        await rig.wait_for_end(first)


async def test_threads_do_not_wait_for_each_other(rig: Rig) -> None:
    agents = [await rig.make_agent() for _ in range(3)]
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        runs = [await rig.submit(agent) for agent in agents]
        async with asyncio.timeout(20):
            while len(rig.model.questions) < len(agents):
                rig.model.asked.clear()
                await rig.model.asked.wait()
        rig.model.gate.set()
        for run in runs:
            assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED


async def test_an_agent_deleted_in_mid_run_does_not_stop_the_worker(rig: Rig) -> None:
    agent, other = await rig.make_agent(), await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        await rig.submit(agent)
        await asyncio.wait_for(rig.model.asked.wait(), 20)
        await rig.services.store.write(lambda tx: tx.agents.delete(ACTOR.organization_id, agent.id))
        rig.model.gate.set()
        assert (await rig.say(other)).ended.status is RunStatus.COMPLETED


async def test_a_held_call_pauses_and_blocks_the_next_message(rig: Rig) -> None:
    agent = await rig.make_agent("ask", "roll", rules=(rules.RequiresApproval(tool_name="ask"),))
    rig.model.script = [call_answer(("c1", "ask"), ("c2", "roll"))]
    async with rig.run_worker():
        reply = await rig.say(agent)
        assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
        assert [row.role for row in reply.messages] == [Role.ASSISTANT, Role.APPROVAL]
        with pytest.raises(PendingApproval) as refused:
            await rig.say(agent)
        assert refused.value.pending_request_id == reply.messages[-1].id
    assert rig.toolbox.started == []
    states = [item.state for item in await rig.read(lambda tx: tx.calls.list_open(agent.id))]
    assert states == [CallState.HELD, CallState.READY]


async def test_a_run_queued_behind_one_that_pauses_fails_with_that_reason(rig: Rig) -> None:
    agent = await rig.make_agent("ask", rules=(rules.RequiresApproval(tool_name="ask"),))
    rig.model.script = [call_answer(("c1", "ask"))]
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        await rig.submit(agent, "one")
        second = await rig.submit(agent, "two")
        rig.model.gate.set()
        run = await rig.wait_for_end(second)
    assert run.failure is not None
    assert run.failure.kind == "pending_approval"
    assert len(await rig.read(lambda tx: tx.calls.list_open(agent.id))) == 1


class RecordingToolbox(ScriptedToolbox):
    """Notes, as each tool starts, how the calls of the answer stand."""

    def __init__(self, rig: Rig, agent: Agent) -> None:
        super().__init__()
        self._rig, self._agent = rig, agent
        self.seen: list[list[tuple[str, CallState]]] = []

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        calls = await self._rig.read(lambda tx: tx.calls.list_open(self._agent.id))
        self.seen.append([(item.call.id, item.state) for item in calls])
        return await super().run(tool, planned, context)


async def test_a_finished_tools_result_is_on_record_while_its_sibling_runs(rig: Rig) -> None:
    agent = await rig.make_agent("fast_a", "slow_b")
    rig.model.script = [call_answer(("c1", "fast_a"), ("c2", "slow_b")), text_answer()]
    toolbox = RecordingToolbox(rig, agent)
    rig.services = replace(rig.services, toolbox=toolbox)
    async with rig.run_worker():
        await rig.say(agent)
    assert toolbox.seen[-1] == [("c1", CallState.SETTLED), ("c2", CallState.STARTED)]
    rows = await rig.context(agent)
    assert [item.outcome for row in rows for item in row.tool_returns] == [Outcome.FINISHED] * 2
