"""Reading steps, and what people think of them."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.agents import Actor
from holdfast.core.messages import Message
from holdfast.core.paging import Page
from holdfast.core.prices import Costs
from holdfast.core.runs import Step, StepQuery
from holdfast.core.traces import ProviderTrace
from holdfast.ports.house import House
from holdfast.ports.store import Transaction


async def retrieve(house: House, actor: Actor, step_id: str) -> Step:
    return await house.store.read(lambda tx: tx.steps.get(actor.organization_id, step_id))


async def list_steps(house: House, actor: Actor, query: StepQuery) -> Sequence[Step]:
    return await house.store.read(lambda tx: tx.steps.list(actor.organization_id, query))


async def costs(
    house: House,
    actor: Actor,
    agent_id: str,
    start_date: datetime | None,
    end_date: datetime | None,
) -> Costs:
    """What the steps of an agent cost together."""
    query = StepQuery(
        page=Page(limit=1), agent_id=agent_id, start_date=start_date, end_date=end_date
    )

    def load(tx: Transaction) -> Costs:
        tx.agents.get(actor.organization_id, agent_id)
        return tx.steps.costs(actor.organization_id, query)

    return await house.store.read(load)


async def messages(house: House, actor: Actor, step_id: str, page: Page) -> Sequence[Message]:
    def load(tx: Transaction) -> Sequence[Message]:
        tx.steps.get(actor.organization_id, step_id)
        return tx.messages.list(actor.organization_id, page, step_id=step_id)

    return await house.store.read(load)


async def trace(
    house: House, actor: Actor, step_id: str
) -> tuple[ProviderTrace, Sequence[str]] | None:
    """The last call of the step's provider, if such calls are kept, and the agent's tags."""

    def load(tx: Transaction) -> tuple[ProviderTrace, Sequence[str]] | None:
        agent_id = tx.steps.get(actor.organization_id, step_id).agent_id
        kept = tx.traces.of_step(actor.organization_id, step_id)
        return (kept[-1], tx.agents.tags([agent_id]).get(agent_id, ())) if kept else None

    return await house.store.read(load)


async def set_feedback(
    house: House, actor: Actor, step_id: str, feedback: str | None, tags: tuple[str, ...] | None
) -> Step:
    return await house.store.write(
        lambda tx: tx.steps.judge(actor.organization_id, step_id, feedback, tags)
    )


async def set_transaction(house: House, actor: Actor, step_id: str, transaction_id: str) -> Step:
    return await house.store.write(
        lambda tx: tx.steps.book(actor.organization_id, step_id, transaction_id)
    )
