"""Steps: read them, and store feedback on them."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.agents import Actor
from holdfast.core.messages import Message
from holdfast.core.paging import Page
from holdfast.core.prices import Costs
from holdfast.core.steps import Step, StepQuery
from holdfast.core.traces import ProviderTrace
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction


async def retrieve(services: Services, actor: Actor, step_id: str) -> Step:
    return await services.store.read(lambda tx: tx.steps.get(actor.organization_id, step_id))


async def list_steps(services: Services, actor: Actor, query: StepQuery) -> Sequence[Step]:
    return await services.store.read(lambda tx: tx.steps.list(actor.organization_id, query))


async def sum_costs(
    services: Services,
    actor: Actor,
    agent_id: str,
    start_date: datetime | None,
    end_date: datetime | None,
) -> Costs:
    """The total costs of an agent's steps."""
    query = StepQuery(
        page=Page(limit=1), agent_id=agent_id, start_date=start_date, end_date=end_date
    )

    def load(tx: Transaction) -> Costs:
        tx.agents.get(actor.organization_id, agent_id)
        return tx.steps.sum_costs(actor.organization_id, query)

    return await services.store.read(load)


async def list_messages(
    services: Services, actor: Actor, step_id: str, page: Page
) -> Sequence[Message]:
    def load(tx: Transaction) -> Sequence[Message]:
        tx.steps.get(actor.organization_id, step_id)
        return tx.messages.list(actor.organization_id, page, step_id=step_id)

    return await services.store.read(load)


async def retrieve_trace(
    services: Services, actor: Actor, step_id: str
) -> tuple[ProviderTrace, Sequence[str]] | None:
    """The stored trace of the step's last provider call, if traces are kept, and the agent's tags."""

    def load(tx: Transaction) -> tuple[ProviderTrace, Sequence[str]] | None:
        agent_id = tx.steps.get(actor.organization_id, step_id).agent_id
        traces = tx.traces.list_of_step(actor.organization_id, step_id)
        return (traces[-1], tx.agents.tags([agent_id]).get(agent_id, ())) if traces else None

    return await services.store.read(load)


async def set_feedback(
    services: Services,
    actor: Actor,
    step_id: str,
    feedback: str | None,
    tags: tuple[str, ...] | None,
) -> Step:
    return await services.store.write(
        lambda tx: tx.steps.set_feedback(actor.organization_id, step_id, feedback, tags)
    )


async def set_transaction(
    services: Services, actor: Actor, step_id: str, transaction_id: str
) -> Step:
    return await services.store.write(
        lambda tx: tx.steps.set_transaction_id(actor.organization_id, step_id, transaction_id)
    )
