"""Identities: create, change, delete, and attach them to agents and blocks (tools-v1 §2)."""

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct, structs

from holdfast.core.agents import Actor, AgentQuery
from holdfast.core.blocks import Block, BlockQuery
from holdfast.core.identities import (
    MAX_PROPERTIES,
    MAX_PROPERTIES_BYTES,
    Identity,
    IdentityProperty,
    IdentityQuery,
    IdentityType,
    merge_properties,
)
from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.errors import AlreadyExists, NotFound, Unprocessable
from holdfast.ports.services import Services
from holdfast.ports.store import IdentityLinks, Transaction
from holdfast.usecases import agents
from holdfast.usecases.agent_views import AgentView, Relation
from holdfast.usecases.identity_links import IdentityView, load_views


class IdentityFields(Struct, frozen=True, kw_only=True):
    """None: not given."""

    properties: tuple[IdentityProperty, ...] | None = None
    agent_ids: tuple[str, ...] | None = None
    block_ids: tuple[str, ...] | None = None


class NewIdentity(IdentityFields, frozen=True, kw_only=True):
    identifier_key: str
    name: str
    identity_type: IdentityType
    project_id: str | None = None


class IdentityChanges(IdentityFields, frozen=True, kw_only=True):
    identifier_key: str | None = None
    name: str | None = None
    identity_type: IdentityType | None = None


async def create(services: Services, actor: Actor, new: NewIdentity) -> IdentityView:
    identity = _build(services, actor, new)
    return await services.store.write(lambda tx: _add(tx, identity, new))


async def upsert(services: Services, actor: Actor, new: NewIdentity) -> IdentityView:
    """Create the identity, or change the one that has its key. What is given replaces what the identity has."""
    built = _build(services, actor, new)

    def work(tx: Transaction) -> IdentityView:
        found = tx.identities.find_by_key(actor.organization_id, new.identifier_key, new.project_id)
        if found is None:
            return _add(tx, built, new)
        changed = structs.replace(found, name=new.name, identity_type=new.identity_type)
        if new.properties is not None:
            changed = structs.replace(changed, properties=built.properties)
        _save(tx, actor, found, changed, built.created_at)
        _detach_others(tx.identities.agents, found.id, new.agent_ids)
        _detach_others(tx.identities.blocks, found.id, new.block_ids)
        return _attach(tx, changed, new, built.created_at)

    return await services.store.write(work)


async def retrieve(services: Services, actor: Actor, identity_id: str) -> IdentityView:
    return await services.store.read(
        lambda tx: load_views(tx, [tx.identities.get(actor.organization_id, identity_id)])[0]
    )


async def list_page(
    services: Services, actor: Actor, query: IdentityQuery
) -> Sequence[IdentityView]:
    return await services.store.read(
        lambda tx: load_views(tx, tx.identities.list(actor.organization_id, query))
    )


async def count(services: Services, actor: Actor, query: IdentityQuery) -> int:
    return await services.store.read(lambda tx: tx.identities.count(actor.organization_id, query))


async def update(
    services: Services, actor: Actor, identity_id: str, changes: IdentityChanges
) -> IdentityView:
    """Change the identity. Properties are merged by their keys; agents and blocks are added to those that it has."""
    now = services.clock.now()

    def work(tx: Transaction) -> IdentityView:
        identity = tx.identities.get_for_update(actor.organization_id, identity_id)
        given = {
            name: value
            for name in ("identifier_key", "name", "identity_type")
            if (value := getattr(changes, name)) is not None
        }
        changed = structs.replace(
            identity,
            properties=merge_properties(identity.properties, changes.properties or ()),
            **given,
        )
        _save(tx, actor, identity, changed, now)
        return _attach(tx, changed, changes, now)

    return await services.store.write(work)


async def replace_properties(
    services: Services, actor: Actor, identity_id: str, properties: Sequence[IdentityProperty]
) -> IdentityView:
    def work(tx: Transaction) -> IdentityView:
        identity = tx.identities.get_for_update(actor.organization_id, identity_id)
        changed = structs.replace(identity, properties=merge_properties((), properties))
        _save(tx, actor, identity, changed, services.clock.now())
        return load_views(tx, [changed])[0]

    return await services.store.write(work)


async def delete(services: Services, actor: Actor, identity_id: str) -> None:
    """Delete the identity. Its agents and blocks stay."""
    await services.store.write(lambda tx: tx.identities.delete(actor.organization_id, identity_id))


async def list_agents(
    services: Services,
    actor: Actor,
    identity_id: str,
    page: Page,
    relations: Collection[Relation] = (),
) -> list[AgentView]:
    return await agents.list_page(
        services,
        actor,
        AgentQuery(page=page, identity_id=identity_id, show_hidden=True),
        relations,
        check=lambda tx: tx.identities.get(actor.organization_id, identity_id),
    )


async def list_blocks(
    services: Services, actor: Actor, identity_id: str, page: Page
) -> Sequence[Block]:
    def work(tx: Transaction) -> Sequence[Block]:
        tx.identities.get(actor.organization_id, identity_id)
        return tx.blocks.list(actor.organization_id, BlockQuery(page=page, identity_id=identity_id))

    return await services.store.read(work)


async def attach_to_agent(
    services: Services, actor: Actor, agent_id: str, identity_id: str
) -> None:
    """Attach the identity to the agent; it is no error if it is attached."""

    def work(tx: Transaction) -> None:
        tx.agents.get(actor.organization_id, agent_id)
        tx.identities.get(actor.organization_id, identity_id)
        tx.identities.agents.attach([identity_id], [agent_id], services.clock.now())

    await services.store.write(work)


async def detach_from_agent(
    services: Services, actor: Actor, agent_id: str, identity_id: str
) -> None:
    """Detach the identity from the agent; it is no error if it is not attached."""

    def work(tx: Transaction) -> None:
        tx.agents.get(actor.organization_id, agent_id)
        tx.identities.get(actor.organization_id, identity_id)
        tx.identities.agents.detach([identity_id], [agent_id])

    await services.store.write(work)


async def attach_to_block(
    services: Services, actor: Actor, block_id: str, identity_id: str
) -> Block:
    """As ``attach_to_agent``. Agents of the identity do not get the block."""

    def work(tx: Transaction) -> Block:
        block = tx.blocks.get(actor.organization_id, block_id)
        tx.identities.get(actor.organization_id, identity_id)
        tx.identities.blocks.attach([identity_id], [block_id], services.clock.now())
        return block

    return await services.store.write(work)


async def detach_from_block(
    services: Services, actor: Actor, block_id: str, identity_id: str
) -> Block:
    def work(tx: Transaction) -> Block:
        block = tx.blocks.get(actor.organization_id, block_id)
        tx.identities.get(actor.organization_id, identity_id)
        tx.identities.blocks.detach([identity_id], [block_id])
        return block

    return await services.store.write(work)


def _build(services: Services, actor: Actor, new: NewIdentity) -> Identity:
    now = services.clock.now()
    return Identity(
        id=services.ids.new_id(Kind.IDENTITY),
        organization_id=actor.organization_id,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
        identifier_key=new.identifier_key,
        name=new.name,
        identity_type=new.identity_type,
        project_id=new.project_id,
        properties=merge_properties((), new.properties or ()),
    )


def _add(tx: Transaction, identity: Identity, new: NewIdentity) -> IdentityView:
    _check_properties(identity)
    _refuse_taken_key(tx, identity)
    tx.identities.add(identity)
    return _attach(tx, identity, new, identity.created_at)


def _save(
    tx: Transaction, actor: Actor, identity: Identity, changed: Identity, now: datetime
) -> None:
    if changed == identity:
        return
    _check_properties(changed)
    if changed.identifier_key != identity.identifier_key:
        _refuse_taken_key(tx, changed)
    tx.identities.save(structs.replace(changed, updated_at=now, last_updated_by_id=actor.user_id))


def _attach(
    tx: Transaction, identity: Identity, given: IdentityFields, now: datetime
) -> IdentityView:
    """Attach the identity to the agents and blocks that are given. Those that it has stay."""
    agent_ids, block_ids = given.agent_ids or (), given.block_ids or ()
    found = {agent.id for agent in tx.agents.find(identity.organization_id, agent_ids)}
    for agent_id in agent_ids:
        if agent_id not in found:
            raise NotFound(f"Items not found in agents: {{'{agent_id}'}}")
    tx.blocks.find(identity.organization_id, block_ids)
    tx.identities.agents.attach([identity.id], agent_ids, now)
    tx.identities.blocks.attach([identity.id], block_ids, now)
    return load_views(tx, [identity])[0]


def _detach_others(links: IdentityLinks, identity_id: str, kept: Collection[str] | None) -> None:
    if kept is not None:
        held = links.holder_ids([identity_id])[identity_id]
        links.detach([identity_id], {*held}.difference(kept))


def _refuse_taken_key(tx: Transaction, identity: Identity) -> None:
    key, project_id = identity.identifier_key, identity.project_id
    if tx.identities.find_by_key(identity.organization_id, key, project_id) is not None:
        where = "without a project" if project_id is None else f"in the project '{project_id}'"
        # The first sentence is V1's.
        raise AlreadyExists(
            "A unique constraint was violated for Identity. Check your input for duplicates: "
            f"there is an identity {where} with the identifier_key '{key}'."
        )


def _check_properties(identity: Identity) -> None:
    count, size = len(identity.properties), len(msgspec.json.encode(identity.properties))
    if count > MAX_PROPERTIES:
        raise Unprocessable(f"An identity has at most {MAX_PROPERTIES} properties, not {count}.")
    if size > MAX_PROPERTIES_BYTES:
        raise Unprocessable(
            f"The properties of an identity have at most {MAX_PROPERTIES_BYTES} bytes together, not {size}."
        )
