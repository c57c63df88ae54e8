"""Identities with the agents and blocks that they are attached to. Changing identities themselves is in ``identities``."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from holdfast.core.agents import Agent
from holdfast.core.identities import Identity
from holdfast.ports.store import Transaction


class IdentityView(Struct, frozen=True, kw_only=True):
    identity: Identity
    agent_ids: tuple[str, ...] = ()
    block_ids: tuple[str, ...] = ()


def load_views(tx: Transaction, identities: Sequence[Identity]) -> list[IdentityView]:
    ids = [identity.id for identity in identities]
    if not ids:
        return []
    agents = tx.identities.agents.holder_ids(ids)
    blocks = tx.identities.blocks.holder_ids(ids)
    return [
        IdentityView(
            identity=identity,
            agent_ids=tuple(agents[identity.id]),
            block_ids=tuple(blocks[identity.id]),
        )
        for identity in identities
    ]


def load_of_agents(
    tx: Transaction, agent_ids: Sequence[str]
) -> Mapping[str, Sequence[IdentityView]]:
    """The identities of each agent."""
    held = tx.identities.list_of_agents(agent_ids)
    found = {identity.id: identity for identities in held.values() for identity in identities}
    views = {view.identity.id: view for view in load_views(tx, list(found.values()))}
    return {
        agent_id: [views[identity.id] for identity in identities]
        for agent_id, identities in held.items()
    }


def replace_of_agent(
    tx: Transaction, agent: Agent, identity_ids: Sequence[str], now: datetime
) -> tuple[IdentityView, ...]:
    """Give the agent these identities and no others."""
    tx.identities.find(agent.organization_id, identity_ids)
    held = {identity.id for identity in tx.identities.list_of_agents([agent.id])[agent.id]}
    tx.identities.agents.detach(held.difference(identity_ids), [agent.id])
    tx.identities.agents.attach(identity_ids, [agent.id], now)
    return tuple(load_of_agents(tx, [agent.id])[agent.id])
