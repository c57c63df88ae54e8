"""What a request may use up: an answer is stopped in its middle, what there is stays, and the agent goes on."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs
from tests.doubles.model import HangingModel, ScriptedModel, call_answer, text_answer
from tests.doubles.prices import ANSWER_COST, PRICE, ScriptedPrices
from tests.support.engine_runs import steps_of, texts_in, use_model, wait_until_set
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.core.agents import Agent
from holdfast.core.budgets import Budget, Overrun
from holdfast.core.messages import Outcome, Role
from holdfast.core.models import ModelChoice
from holdfast.core.money import NANOS_PER_DOLLAR
from holdfast.core.prices import Price
from holdfast.core.runs import Run, RunStatus, StopReason, Usage
from holdfast.core.steps import StepStatus
from holdfast.core.tool_rules import RequiresApproval
from holdfast.errors import InvalidArgument, ModelOverloaded
from holdfast.ports.model import Answer, TextDelta, ThinkingDelta, ToolCallDelta, UsageUpdate
from holdfast.testing import FakeClock
from holdfast.usecases import runs

# What the rig's agent and a greeting come to, by estimate.
PROMPT_TOKENS = 5
# A budget of seconds in which a model or a tool is sure to have begun, also on a busy machine.
ENOUGH_TO_BEGIN = 1.0


async def assert_over_budget(rig: Rig, agent: Agent, run: Run) -> tuple[Run, Overrun]:
    """What holds of every run that is stopped so: it says why, its history is valid, and the agent answers."""
    ended = await rig.wait_for_end(run)
    assert ended.overrun is not None
    assert ended.failure is None
    is_time = ended.overrun.limit == "max_seconds"
    status = RunStatus.COMPLETED if is_time else RunStatus.FAILED
    reason = StopReason.MAX_STEPS if is_time else StopReason.MAX_TOKENS_EXCEEDED
    assert (ended.status, ended.stop_reason) == (status, reason)
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []
    assert await rig.read(lambda tx: tx.steps.list_pending(run.id)) == []
    model, rig.services = rig.services.model, replace(rig.services, model=ScriptedModel())
    async with rig.run_worker():
        assert (await rig.say(agent, "and now?")).ended.stop_reason is StopReason.END_TURN
    rig.services = replace(rig.services, model=model)
    return ended, ended.overrun


def with_high_usage(answer: Answer) -> Answer:
    """The provider says that it took more than anybody could see."""
    return structs.replace(answer, usage=Usage(1_000, 5))


def streaming_model(*texts: str) -> HangingModel:
    return HangingModel(*map(TextDelta, texts))


@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_an_answer_that_takes_too_many_tokens_is_stopped_in_its_middle(
    rig: Rig, stream_tokens: bool
) -> None:
    """Four bytes are a token. What was shown is kept, also the words that were too many."""
    model = streaming_model("One two ", "three ", "four ", "and so on.")
    use_model(rig, model)
    agent = await rig.make_agent()
    budget = Budget(total_tokens=PROMPT_TOKENS + 3)
    async with rig.run_worker():
        run = await rig.submit(agent, budget=budget, stream_tokens=stream_tokens)
        await wait_until_set(model.hung_up)
        await rig.wait_for_end(run)
    _, over = await assert_over_budget(rig, agent, run)

    assert over == Overrun("max_total_tokens", PROMPT_TOKENS + 3, PROMPT_TOKENS + 4, estimated=True)
    assert (await texts_in(rig, agent))[:2] == [
        (Role.USER, "Hi"),
        (Role.ASSISTANT, "One two three "),
    ]
    assert [step.status for step in await steps_of(rig, run)] == [StepStatus.CANCELLED]


async def test_what_the_provider_counts_stands_in_the_place_of_the_estimate(rig: Rig) -> None:
    rig.model.script = [
        (
            UsageUpdate(Usage(1_000, 1)),
            TextDelta("One two "),
            TextDelta("three "),
            text_answer("Done."),
        ),
        (
            UsageUpdate(Usage(1_000, 1)),
            TextDelta("One two "),
            UsageUpdate(Usage(1_000, 9)),
            text_answer("Done."),
        ),
    ]
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=1_003))
        await rig.wait_for_end(run)
        other = await rig.submit(agent, budget=Budget(total_tokens=1_008))
        await rig.wait_for_end(other)

    _, over = await assert_over_budget(rig, agent, run)
    assert over == Overrun("max_total_tokens", 1_003, 1_005, estimated=True)
    _, over = await assert_over_budget(rig, agent, other)
    assert over == Overrun("max_total_tokens", 1_008, 1_009, estimated=True)


async def test_thoughts_and_arguments_count_too(rig: Rig) -> None:
    model = HangingModel(
        ThinkingDelta("Let me see."),
        ToolCallDelta("call-1", "tool", ""),
        ToolCallDelta("call-1", "tool", '{"text": "a long story that is told'),
    )
    use_model(rig, model)
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=24))
        await rig.wait_for_end(run)
    await assert_over_budget(rig, agent, run)

    # Half a call is none.
    assert [row.tool_calls for row in (await rig.context(agent))[1:3]] == [(), ()]


async def test_a_question_that_is_too_long_already_is_not_asked(rig: Rig) -> None:
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = await rig.submit(agent, "word " * 100, budget=Budget(total_tokens=50))
        await rig.wait_for_end(run)
    asked = len(rig.model.questions)
    await assert_over_budget(rig, agent, run)

    assert asked == 0
    assert await texts_in(rig, agent) == [(Role.USER, "and now?"), (Role.ASSISTANT, "Hello")]


async def test_tools_are_not_started_when_the_answer_has_used_it_up(rig: Rig) -> None:
    """The provider's own count stands, once it is known."""
    rig.model.script = [with_high_usage(call_answer(("call-1", "tool"), ("call-2", "fast")))]
    agent = await rig.make_agent("tool", "fast")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=1_000))
        await rig.wait_for_end(run)
    _, over = await assert_over_budget(rig, agent, run)

    assert over == Overrun("max_total_tokens", 1_000, 1_005)
    assert rig.toolbox.started == []
    results = (await rig.context(agent))[3]
    assert [item.outcome for item in results.tool_returns] == [Outcome.NOT_STARTED] * 2
    assert results.tool_returns[0].text == (
        "The run had used up its max_total_tokens before this tool was started."
    )
    assert [step.status for step in await steps_of(rig, run)] == [StepStatus.SUCCESS]


async def test_an_answer_that_is_complete_is_the_end_whatever_it_took(rig: Rig) -> None:
    rig.model.script = [with_high_usage(text_answer())]
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=1_000))
        ended = await rig.wait_for_end(run)

    assert (ended.stop_reason, ended.overrun) == (StopReason.END_TURN, None)


async def test_a_call_that_waits_for_a_person_goes_on_waiting(rig: Rig) -> None:
    """Waiting takes no tokens; the answer to it is another run."""
    rig.model.script = [with_high_usage(call_answer(("call-1", "careful")))]
    agent = await rig.make_agent("careful", rules=(RequiresApproval(tool_name="careful"),))
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=1_000))
        ended = await rig.wait_for_end(run)

    assert (ended.status, ended.overrun) == (RunStatus.PAUSED, None)


async def test_steps_are_added_up(rig: Rig) -> None:
    rig.model.script = [
        with_high_usage(call_answer(("call-1", "tool"))),
        with_high_usage(call_answer(("call-2", "tool"))),
    ]
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=3_000))
        await rig.wait_for_end(run)
    _, over = await assert_over_budget(rig, agent, run)

    # Two answers, and by estimate the prompt of a third: the second one's and what its tool returned.
    assert over == Overrun("max_total_tokens", 3_000, 3_016, estimated=True)
    assert rig.toolbox.started == ["call-1", "call-2"]


@pytest.mark.parametrize("limit", range(1, 60, 3))
async def test_wherever_it_is_stopped_the_history_is_valid(rig: Rig, limit: int) -> None:
    rig.model.script = [
        (
            ThinkingDelta("First "),
            TextDelta("I call "),
            ToolCallDelta("call-1", "tool", ""),
            ToolCallDelta("call-1", "tool", "{}"),
            call_answer(("call-1", "tool")),
        ),
        call_answer(("call-2", "tool"), ("call-3", "fast")),
        (TextDelta("And that is "), TextDelta("all there is to say."), text_answer("Done.")),
    ]
    agent = await rig.make_agent("tool", "fast")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(total_tokens=limit), stream_tokens=True)
        ended = await rig.wait_for_end(run)
        assert_calls_answered(await rig.context(agent))
        rig.model.script = []
        assert (await rig.say(agent, "Next")).ended.stop_reason is StopReason.END_TURN

    is_over = ended.stop_reason is StopReason.MAX_TOKENS_EXCEEDED
    assert is_over is (ended.overrun is not None)
    assert is_over or limit >= 45


async def test_an_answer_that_costs_too_much_is_stopped_in_its_middle(rig: Rig) -> None:
    """1 dollar for a million tokens in, 2 out: 5 tokens in and 3 out are 11,000 billionths."""
    rig.prices.price = PRICE
    model = streaming_model("One two ", "three", "four")
    use_model(rig, model)
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(cost=10_000))
        await wait_until_set(model.hung_up)
        await rig.wait_for_end(run)
    _, over = await assert_over_budget(rig, agent, run)

    assert over == Overrun("max_cost", 0.000_01, 0.000_013, estimated=True)


async def test_what_the_steps_before_have_cost_counts(rig: Rig) -> None:
    rig.prices.price = PRICE
    rig.model.script = [call_answer(("call-1", "tool"))]
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(cost=ANSWER_COST - 1))
        ended = await rig.wait_for_end(run)
    await assert_over_budget(rig, agent, run)

    assert (ended.cost, rig.toolbox.started) == (ANSWER_COST, [])


async def test_a_cost_that_cannot_be_known_cannot_be_kept(rig: Rig) -> None:
    agent = await rig.make_agent()

    with pytest.raises(InvalidArgument, match="the price of holdfast/guide is not known"):
        await rig.submit(agent, budget=Budget(cost=1))

    # Or it was known when the message was sent.
    rig.prices.price = PRICE
    run = await rig.submit(agent, budget=Budget(cost=1_000_000))
    rig.prices.price = None
    async with rig.run_worker():
        ended = await rig.wait_for_end(run)
    assert ended.failure is not None
    assert ended.failure.kind == "unpriced_model"
    assert rig.model.questions == []


async def test_time_is_up_while_the_model_speaks(rig: Rig) -> None:
    model = streaming_model("One two")
    use_model(rig, model)
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(seconds=ENOUGH_TO_BEGIN))
        await wait_until_set(model.hung_up)
        await rig.wait_for_end(run)
    _, over = await assert_over_budget(rig, agent, run)

    assert (over.limit, over.value, over.estimated) == ("max_seconds", ENOUGH_TO_BEGIN, False)
    assert over.used >= ENOUGH_TO_BEGIN
    assert (await texts_in(rig, agent))[1] == (Role.ASSISTANT, "One two")


async def test_time_is_up_while_a_tool_runs(rig: Rig) -> None:
    rig.model.script = [call_answer(("call-1", "tool"))]
    rig.toolbox.gate = asyncio.Event()
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(seconds=ENOUGH_TO_BEGIN))
        await rig.wait_for_end(run)
    rig.toolbox.gate = None
    await assert_over_budget(rig, agent, run)

    (result,) = (await rig.context(agent))[3].tool_returns
    assert result.outcome is Outcome.KILLED
    assert result.text == (
        "The run had used up its max_seconds while this tool was running; it was killed."
    )


async def test_time_that_is_up_is_never_told_as_less_than_the_limit(rig: Rig) -> None:
    """The clock of the run's start is behind the clock of the timer."""
    rig.model.script = [call_answer(("call-1", "tool"))]
    rig.toolbox.gate = asyncio.Event()
    rig.services = replace(rig.services, clock=FakeClock(rig.services.clock.now()))
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(seconds=0.05))
        await rig.wait_for_end(run)
    rig.toolbox.gate = None

    _, over = await assert_over_budget(rig, agent, run)
    assert over.used == 0.05


async def test_the_time_that_a_dead_process_took_counts(rig: Rig) -> None:
    model = HangingModel()
    use_model(rig, model)
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = await rig.submit(agent, budget=Budget(seconds=1_000))
        await wait_until_set(model.silent)
    later = Rig(rig.services.store)
    now = rig.services.clock.now() + timedelta(seconds=1_001)
    later.services = replace(later.services, model=rig.model, clock=FakeClock(now))

    async with later.run_worker():
        await later.wait_for_end(run)

    _, over = await assert_over_budget(later, agent, run)
    assert over.used >= 1_001


async def test_a_run_without_a_budget_is_not_measured(rig: Rig, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("holdfast.engine.ask_model.Meter", fail)
    agent = await rig.make_agent()
    async with rig.run_worker():
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_what_the_provider_had_counted_of_an_answer_that_was_stopped_is_paid_for(
    rig: Rig, stream_tokens: bool
) -> None:
    rig.prices.price = PRICE
    rig.model.script = [
        call_answer(("call-1", "tool")),
        (
            UsageUpdate(Usage(1_000, 1)),
            TextDelta("One two "),
            TextDelta("three "),
            text_answer("Done."),
        ),
    ]
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        budget = Budget(total_tokens=1_018)
        run = await rig.submit(agent, budget=budget, stream_tokens=stream_tokens)
        await rig.wait_for_end(run)
    ended, _ = await assert_over_budget(rig, agent, run)

    counted = Usage(1_000, 1)
    newest, oldest = sorted(await steps_of(rig, run), key=lambda step: -step.usage.prompt_tokens)
    assert (newest.status, newest.usage) == (StepStatus.CANCELLED, counted)
    assert (newest.cost, oldest.cost) == (PRICE.cost(counted), ANSWER_COST)
    assert ended.usage == Usage(1_010, 6)
    assert ended.cost == ANSWER_COST + PRICE.cost(counted)


async def test_what_the_provider_had_counted_of_a_cancelled_answer_is_paid_for(rig: Rig) -> None:
    rig.prices.price = PRICE
    counted = Usage(1_000, 3)
    model = HangingModel(UsageUpdate(Usage(1_000, 1)), TextDelta("Well"), UsageUpdate(counted))
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(await rig.make_agent())
        await wait_until_set(model.silent)
        await runs.cancel(rig.services, ACTOR, run.id)
        ended = await rig.wait_for_end(run)

    (step,) = await steps_of(rig, run)
    assert (step.status, step.usage, step.cost) == (
        StepStatus.CANCELLED,
        counted,
        PRICE.cost(counted),
    )
    assert (ended.status, ended.usage, ended.cost) == (RunStatus.CANCELLED, counted, step.cost)


async def test_an_answer_that_was_asked_for_again_is_counted_once(rig: Rig) -> None:
    broke_off = ModelOverloaded("TEST: full", transient=True)
    rig.model.script = [
        (UsageUpdate(Usage(1_000, 1)), broke_off),
        (UsageUpdate(Usage(10, 1)), text_answer()),
    ]
    async with rig.run_worker():
        reply = await rig.say(await rig.make_agent())

    assert reply.ended.usage == Usage(10, 5)


async def make_full_agent(rig: Rig, **settings: Any) -> Agent:
    """An agent whose next answer fills its window."""
    agent = await rig.make_agent("tool", compaction_settings={"mode": "all", **settings})
    await rig.say(agent, "a long story " * 50)
    return agent


async def test_a_summary_that_takes_too_many_tokens_is_stopped_in_its_middle(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_full_agent(rig)
        before = await rig.context(agent)
        full = structs.replace(call_answer(("call-1", "tool")), usage=Usage(127_000, 5))
        counted = UsageUpdate(Usage(1_000, 1))
        rig.model.script = [full, (counted, TextDelta("They talked " * 2), text_answer("Unheard."))]
        run = await rig.submit(agent, budget=Budget(total_tokens=128_008))
        await rig.wait_for_end(run)
    ended, over = await assert_over_budget(rig, agent, run)

    assert over == Overrun("max_total_tokens", 128_008, 128_012, estimated=True)
    assert ended.usage == Usage(128_000, 6)
    newest = max(await steps_of(rig, run), key=lambda step: step.created_at)
    assert (newest.origin, newest.status) == ("compaction", StepStatus.CANCELLED)
    assert newest.usage == counted.usage
    # Nothing of it is hidden.
    assert [row.id for row in await rig.context(agent)][: len(before)] == [r.id for r in before]


async def test_a_complete_summary_is_kept_although_it_has_exceeded_the_budget(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_full_agent(rig)
        full = structs.replace(call_answer(("call-1", "tool")), usage=Usage(127_000, 5))
        dear = structs.replace(text_answer("They talked."), usage=Usage(5_000, 5))
        rig.model.script = [full, dear]
        run = await rig.submit(agent, budget=Budget(total_tokens=130_000))
        await rig.wait_for_end(run)
    _, over = await assert_over_budget(rig, agent, run)

    assert over == Overrun("max_total_tokens", 130_000, 132_010)
    summaries = [row.text for row in await rig.context(agent) if row.role is Role.SUMMARY]
    assert len(summaries) == 1
    assert "They talked." in summaries[0]


async def test_a_run_that_has_said_all_ends_so_though_its_summary_was_too_dear(rig: Rig) -> None:
    """Making the context smaller is left to the next run."""
    async with rig.run_worker():
        agent = await make_full_agent(rig)
        full = structs.replace(text_answer("All said."), usage=Usage(127_000, 5))
        rig.model.script = [
            full,
            (UsageUpdate(Usage(2_000, 1)), TextDelta("They"), text_answer("Unheard.")),
        ]
        reply = await rig.say(agent, budget=Budget(total_tokens=128_500))
        run = await rig.wait_for_end(reply.run)

    assert (run.status, run.stop_reason) == (RunStatus.COMPLETED, StopReason.END_TURN)
    assert (run.failure, run.overrun) == (None, None)
    assert run.usage == Usage(129_000, 6)
    newest = max(await steps_of(rig, run), key=lambda step: step.created_at)
    assert (newest.origin, newest.status) == ("compaction", StepStatus.CANCELLED)
    assert (await rig.context(agent))[-1].text == "All said."


async def test_a_summariser_without_a_price_is_not_asked_where_money_is_short(rig: Rig) -> None:
    class PricesOfSomeModels(ScriptedPrices):
        async def find(self, choice: ModelChoice) -> Price | None:
            return PRICE if choice.handle == "holdfast/guide" else None

    settings = ProviderSettings(
        {"openai": {"api_key": "sk-test", "base_url": "http://127.0.0.1:1/v1"}}
    )
    catalogue = ProviderCatalogue(settings)
    rig.services = replace(rig.services, prices=PricesOfSomeModels(), catalogue=catalogue)
    async with rig.run_worker():
        agent = await make_full_agent(rig, model="openai/gpt-5-mini")
        full = structs.replace(text_answer("All said."), usage=Usage(127_000, 5))
        rig.model.script = [full, text_answer("They talked.")]
        reply = await rig.say(agent, budget=Budget(cost=10 * NANOS_PER_DOLLAR))
        rig.model.script = [full, text_answer("They talked.")]
        unbound = await rig.say(agent)

    asked = [step.model.handle for step in await steps_of(rig, reply.run)]
    assert asked == ["holdfast/guide", "holdfast/guide"]
    assert "openai/gpt-5-mini" in [step.model.handle for step in await steps_of(rig, unbound.run)]
