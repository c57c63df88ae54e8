"""Identities, and which agents and blocks they are attached to."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.support.values import Make, moment

from holdfast.core.agents import Agent, AgentQuery
from holdfast.core.blocks import Block, BlockQuery
from holdfast.core.identities import (
    Identity,
    IdentityProperty,
    IdentityQuery,
    IdentityType,
    PropertyType,
)
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Order, Page
from holdfast.errors import NotFound, StoreUnavailable
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
OTHER_ORG = "org-11111111-1111-4111-8111-111111111111"
UNKNOWN = "identity-99999999-9999-4999-8999-999999999999"
NOT_FOUND = f"Identity not found with id='{UNKNOWN}'"
OLDEST_FIRST = Page(limit=10, order=Order.ASC)


async def add(store: Store, *identities: Identity) -> None:
    def work(tx: Transaction) -> None:
        for identity in identities:
            tx.identities.add(identity)

    await store.write(work)


async def add_holders(store: Store, make: Make) -> tuple[list[Agent], list[Block]]:
    """Two agents and two blocks."""
    agents, blocks = [make.agent(), make.agent()], [make.block(), make.block()]

    def work(tx: Transaction) -> None:
        for agent in agents:
            tx.agents.add(agent)
        tx.blocks.add(*blocks)

    await store.write(work)
    return agents, blocks


async def add_attached(store: Store, make: Make) -> tuple[Identity, list[Agent], list[Block]]:
    """An identity with two agents and two blocks."""
    agents, blocks = await add_holders(store, make)
    identity = make.identity()

    def work(tx: Transaction) -> None:
        tx.identities.add(identity)
        tx.identities.agents.attach([identity.id], ids(agents), moment(1))
        tx.identities.blocks.attach([identity.id], ids(blocks), moment(1))

    await store.write(work)
    return identity, agents, blocks


def ids(found: Sequence[Identity | Agent | Block]) -> list[str]:
    return [item.id for item in found]


async def test_an_identity_is_kept_with_all_its_fields(any_store: Store, make: Make) -> None:
    values: tuple[str | int | float | bool | dict[str, object], ...] = (
        "x",
        1,
        1.5,
        True,
        {"k": [1, None]},
    )
    identity = make.identity(
        identity_type=IdentityType.ORG,
        project_id="p",
        properties=tuple(
            IdentityProperty(key=f"k{number}", value=value, type=PropertyType.JSON)
            for number, value in enumerate(values)
        ),
        created_by_id="user-1",
        last_updated_by_id="user-2",
    )
    await add(any_store, identity)

    assert await any_store.read(lambda tx: tx.identities.get(ORG, identity.id)) == identity
    locked = await any_store.write(lambda tx: tx.identities.get_for_update(ORG, identity.id))
    assert locked == identity
    changed = replace(identity, name="New", identifier_key="new", properties=())
    await any_store.write(lambda tx: tx.identities.save(changed))
    assert await any_store.read(lambda tx: tx.identities.get(ORG, identity.id)) == changed


async def test_an_identity_of_another_organization_does_not_exist(
    any_store: Store, make: Make
) -> None:
    identity = make.identity(id=UNKNOWN, organization_id=OTHER_ORG)
    await add(any_store, identity)

    for look in (
        lambda tx: tx.identities.get(ORG, UNKNOWN),
        lambda tx: tx.identities.get_for_update(ORG, UNKNOWN),
        lambda tx: tx.identities.find(ORG, [UNKNOWN]),
        lambda tx: tx.identities.delete(ORG, UNKNOWN),
        lambda tx: tx.identities.save(replace(identity, organization_id=ORG)),
    ):
        with pytest.raises(NotFound, match=NOT_FOUND):
            await any_store.write(look)
    key = identity.identifier_key
    assert await any_store.write(lambda tx: tx.identities.find_by_key(ORG, key, None)) is None
    assert await any_store.read(lambda tx: tx.identities.find(ORG, [])) == []


async def test_some_identities_are_found_in_the_order_in_which_they_are_asked_for(
    any_store: Store, make: Make
) -> None:
    one, two, three = make.identity(), make.identity(), make.identity()
    await add(any_store, one, two, three)

    found = await any_store.read(lambda tx: tx.identities.find(ORG, [three.id, one.id]))

    assert ids(found) == [three.id, one.id]


async def test_a_key_is_unique_in_its_project_and_without_a_project(
    any_store: Store, make: Make
) -> None:
    projects = (None, "", "p", "q")
    made = [make.identity(identifier_key="k", project_id=project) for project in projects]
    await add(any_store, *made, make.identity(identifier_key="k", organization_id=OTHER_ORG))

    for identity in made:
        found = await any_store.write(
            lambda tx, p=identity.project_id: tx.identities.find_by_key(ORG, "k", p)  # type: ignore[misc] # bound at once
        )
        assert found == identity
        with pytest.raises(StoreUnavailable, match="one key at the same moment"):
            await add(any_store, make.identity(identifier_key="k", project_id=identity.project_id))


@pytest.mark.parametrize("project_id", [None, "p"])
async def test_who_looks_for_the_key_first_sees_the_identity_that_another_has_stored_meanwhile(
    any_store: Store, make: Make, project_id: str | None
) -> None:
    def work(tx: Transaction, identity: Identity) -> str:
        found = tx.identities.find_by_key(ORG, "k", project_id)
        if found is None:
            tx.identities.add(identity)
        return (found or identity).id

    async def upsert() -> str:
        identity = make.identity(identifier_key="k", project_id=project_id)
        return await any_store.write(lambda tx: work(tx, identity))

    used = await asyncio.gather(*(upsert() for _ in range(10)))

    assert len({*used}) == 1


async def test_filters_narrow_the_list_and_the_count(any_store: Store, make: Make) -> None:
    maria = make.identity(name="Maria 100%", identifier_key="m", project_id="p")
    mario = make.identity(name="Mario", identity_type=IdentityType.OTHER)
    hidden = make.identity(name="Maria", organization_id=OTHER_ORG)
    await add(any_store, maria, mario, hidden)

    async def list_ids(**filters: object) -> list[str]:
        query = IdentityQuery(page=OLDEST_FIRST, **filters)  # type: ignore[arg-type] # any filter
        found = ids(await any_store.read(lambda tx: tx.identities.list(ORG, query)))
        assert await any_store.read(lambda tx: tx.identities.count(ORG, query)) == len(found)
        return found

    assert await list_ids() == [maria.id, mario.id]
    assert await list_ids(name_contains="ARI") == [maria.id, mario.id]
    assert await list_ids(name_contains="0%") == [maria.id]
    assert await list_ids(name_contains="_") == []
    assert await list_ids(identifier_key="m") == [maria.id]
    assert await list_ids(identity_type=IdentityType.OTHER) == [mario.id]
    assert await list_ids(project_id="p") == [maria.id]
    assert await list_ids(project_id="p", identity_type=IdentityType.OTHER) == []


async def test_pages_follow_one_another(any_store: Store, make: Make) -> None:
    made = [make.identity() for _ in range(3)]
    await add(any_store, *made)

    def page(**fields: object) -> IdentityQuery:
        return IdentityQuery(page=Page(limit=1, **fields))  # type: ignore[arg-type] # any field

    for query, expected in (
        (page(), made[2]),
        (page(after=made[2].id), made[1]),
        (page(before=made[0].id), made[1]),
    ):
        found = await any_store.read(lambda tx, q=query: tx.identities.list(ORG, q))  # type: ignore[misc] # bound at once
        assert ids(found) == [expected.id]
    with pytest.raises(NotFound, match=f"No Identity found with id {UNKNOWN}"):
        await any_store.read(lambda tx: tx.identities.list(ORG, page(after=UNKNOWN)))


async def test_links_are_made_once_and_in_their_order(any_store: Store, make: Make) -> None:
    agents, blocks = await add_holders(any_store, make)
    one, two = make.identity(), make.identity()
    await add(any_store, one, two)

    def attach(tx: Transaction) -> None:
        tx.identities.agents.attach([two.id], [agents[1].id], moment(1))
        tx.identities.agents.attach([one.id, two.id], ids(agents), moment(2))
        tx.identities.agents.attach([one.id], [], moment(2))
        tx.identities.blocks.attach([one.id], ids(blocks), moment(3))

    for _ in range(2):
        await any_store.write(attach)
    held = await any_store.read(lambda tx: tx.identities.agents.holder_ids([one.id, two.id]))
    assert held == {one.id: ids(agents), two.id: ids(agents)[::-1]}
    held = await any_store.read(lambda tx: tx.identities.blocks.holder_ids([one.id, two.id]))
    assert held == {one.id: ids(blocks), two.id: []}
    found = await any_store.read(lambda tx: tx.identities.list_of_agents(ids(agents)))
    assert found == {agents[0].id: [one, two], agents[1].id: [two, one]}

    def detach(tx: Transaction) -> None:
        tx.identities.agents.detach([one.id], ids(agents))
        tx.identities.agents.detach([], ids(agents))

    for _ in range(2):
        await any_store.write(detach)
    found = await any_store.read(lambda tx: tx.identities.list_of_agents(ids(agents)))
    assert found == {agent.id: [two] for agent in agents}


async def test_one_identity_is_attached_by_many_at_the_same_moment(
    any_store: Store, make: Make
) -> None:
    agents, _ = await add_holders(any_store, make)
    identity = make.identity()
    await add(any_store, identity)

    await asyncio.gather(
        *(
            any_store.write(
                lambda tx: tx.identities.agents.attach([identity.id], ids(agents), moment(1))
            )
            for _ in range(10)
        )
    )

    held = await any_store.read(lambda tx: tx.identities.agents.holder_ids([identity.id]))
    assert held == {identity.id: ids(agents)}


async def test_links_are_only_made_with_what_there_is(any_store: Store, make: Make) -> None:
    agents, _ = await add_holders(any_store, make)

    with pytest.raises(NotFound):
        await any_store.write(
            lambda tx: tx.identities.agents.attach([UNKNOWN], ids(agents), moment(1))
        )


async def test_a_deleted_identity_leaves_its_agents_and_blocks(
    any_store: Store, make: Make
) -> None:
    identity, agents, blocks = await add_attached(any_store, make)

    await any_store.write(lambda tx: tx.identities.delete(ORG, identity.id))

    held = await any_store.read(lambda tx: tx.identities.list_of_agents(ids(agents)))
    assert held == {agent.id: [] for agent in agents}
    assert len(await any_store.read(lambda tx: tx.agents.find(ORG, ids(agents)))) == 2
    assert await any_store.read(lambda tx: tx.blocks.find(ORG, ids(blocks))) == blocks


async def test_what_is_deleted_is_detached_from_its_identities(
    any_store: Store, make: Make
) -> None:
    identity, agents, blocks = await add_attached(any_store, make)

    def delete(tx: Transaction) -> None:
        tx.agents.delete(ORG, agents[0].id)
        tx.blocks.delete(ORG, blocks[0].id)

    await any_store.write(delete)

    held = await any_store.read(lambda tx: tx.identities.agents.holder_ids([identity.id]))
    assert held == {identity.id: [agents[1].id]}
    held = await any_store.read(lambda tx: tx.identities.blocks.holder_ids([identity.id]))
    assert held == {identity.id: [blocks[1].id]}


async def test_agents_and_blocks_are_listed_by_their_identities(
    any_store: Store, make: Make
) -> None:
    agents, blocks = await add_holders(any_store, make)
    a, b, other = (make.identity(identifier_key=key) for key in ("a", "b", "other"))
    await add(any_store, a, b, other)

    def attach(tx: Transaction) -> None:
        tx.identities.agents.attach([a.id, b.id], [agents[0].id], moment(1))
        tx.identities.agents.attach([b.id], [agents[1].id], moment(1))
        tx.identities.blocks.attach([a.id, b.id], [blocks[0].id], moment(1))
        tx.identities.blocks.attach([b.id], [blocks[1].id], moment(1))

    await any_store.write(attach)
    cases: list[tuple[dict[str, object], list[int]]] = [
        ({"identity_id": a.id}, [0]),
        ({"identity_id": b.id}, [0, 1]),
        ({"identity_id": other.id}, []),
        ({"identity_id": "no id"}, []),
        ({"identifier_keys": ("a", "b")}, [0, 1]),
        ({"identifier_keys": ("a", "other")}, [0]),
        ({"identifier_keys": ("unknown",)}, []),
        ({"identity_id": b.id, "identifier_keys": ("a",)}, [0]),
        ({"identity_id": other.id, "identifier_keys": ("a",)}, []),
    ]
    for filters, expected in cases:
        of_agents = AgentQuery(page=OLDEST_FIRST, **filters)  # type: ignore[arg-type] # any filter
        found = await any_store.read(lambda tx, q=of_agents: tx.agents.list(ORG, q))  # type: ignore[misc] # bound at once
        assert ids(found) == [agents[index].id for index in expected], filters
        counted = await any_store.read(lambda tx, q=of_agents: tx.agents.count(ORG, q))  # type: ignore[misc] # bound at once
        assert counted == len(expected)
        of_blocks = BlockQuery(page=OLDEST_FIRST, **filters)  # type: ignore[arg-type] # any filter
        shown = await any_store.read(lambda tx, q=of_blocks: tx.blocks.list(ORG, q))  # type: ignore[misc] # bound at once
        assert ids(shown) == [blocks[index].id for index in expected], filters
