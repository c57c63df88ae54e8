"""What a run costs is written down step by step, as far as it is known."""

from tests.doubles.model import call_answer, text_answer
from tests.doubles.prices import ANSWER_COST, PRICE
from tests.support.rig import ACTOR, Rig

from holdfast.core.paging import Page
from holdfast.core.prices import Costs
from holdfast.core.steps import StepQuery


async def test_a_step_and_its_run_know_what_they_cost(rig: Rig) -> None:
    rig.prices.price = PRICE
    rig.model.script = [call_answer(("call-1", "tool")), text_answer()]
    agent = await rig.make_agent("tool")
    async with rig.run_worker():
        reply = await rig.say(agent)

    query = StepQuery(page=Page(limit=10), run_id=reply.run.id)
    run = await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, reply.run.id))
    steps = await rig.read(lambda tx: tx.steps.list(ACTOR.organization_id, query))
    costs = await rig.read(lambda tx: tx.steps.sum_costs(ACTOR.organization_id, query))
    assert [step.cost for step in steps] == [ANSWER_COST, ANSWER_COST]
    assert run.cost == 2 * ANSWER_COST
    assert costs == Costs(cost=2 * ANSWER_COST, steps=2, unpriced=0)


async def test_steps_without_a_known_price_are_counted_and_not_guessed(rig: Rig) -> None:
    agent, other = await rig.make_agent(), await rig.make_agent()
    async with rig.run_worker():
        await rig.say(agent)
        silent = await rig.read(
            lambda tx: tx.steps.sum_costs(
                ACTOR.organization_id, StepQuery(page=Page(limit=1), agent_id=agent.id)
            )
        )
        rig.prices.price = PRICE
        await rig.say(agent)
        await rig.say(other)

    query = StepQuery(page=Page(limit=1), agent_id=agent.id)
    assert silent == Costs(cost=None, steps=1, unpriced=1)
    assert await rig.read(lambda tx: tx.steps.sum_costs(ACTOR.organization_id, query)) == Costs(
        cost=ANSWER_COST, steps=2, unpriced=1
    )
