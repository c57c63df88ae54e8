"""Archives, and which agents have them."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.support.values import Make, moment

from holdfast.core.agents import Agent, AgentQuery
from holdfast.core.archives import Archive, ArchiveQuery
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Order, Page
from holdfast.core.passages import PassageFilter
from holdfast.errors import NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
OTHER_ORG = "org-11111111-1111-4111-8111-111111111111"
UNKNOWN = "archive-99999999-9999-4999-8999-999999999999"


async def add_agents(store: Store, make: Make, number: int) -> list[Agent]:
    agents = [make.agent() for _ in range(number)]

    def work(tx: Transaction) -> None:
        for agent in agents:
            tx.agents.add(agent)
            tx.threads.add(make.thread(agent))

    await store.write(work)
    return agents


async def add_archives(store: Store, make: Make, number: int, **fields: object) -> list[Archive]:
    archives = [make.archive(**fields) for _ in range(number)]

    def work(tx: Transaction) -> None:
        for archive in archives:
            tx.archives.add(archive)

    await store.write(work)
    return archives


async def names_of_agent(store: Store, agent: Agent) -> list[str]:
    held = await store.read(lambda tx: tx.archives.list_of_agents([agent.id]))
    return [archive.id for archive in held[agent.id]]


async def test_an_archive_is_kept_with_all_its_fields(any_store: Store, make: Make) -> None:
    archive = make.archive(
        description="What we know.",
        embedding="openai/text-embedding-3-small",
        embedding_config={"embedding_dim": 1536},
        metadata={"k": [1, None]},
        deduplicate=True,
        created_by_id="user-1",
        last_updated_by_id="user-2",
    )
    await any_store.write(lambda tx: tx.archives.add(archive))

    assert await any_store.read(lambda tx: tx.archives.get(ORG, archive.id)) == archive
    locked = await any_store.write(lambda tx: tx.archives.get_for_update(ORG, archive.id))
    assert locked == archive


async def test_an_archive_of_another_organization_does_not_exist(
    any_store: Store, make: Make
) -> None:
    (archive,) = await add_archives(any_store, make, 1)

    for missing, organization in ((UNKNOWN, ORG), (archive.id, OTHER_ORG)):
        text = f"Archive with ID {missing} not found"
        with pytest.raises(NotFound, match=text):
            await any_store.read(lambda tx, m=missing, o=organization: tx.archives.get(o, m))  # type: ignore[misc] # bound at once
        with pytest.raises(NotFound, match=text):
            await any_store.write(lambda tx, m=missing, o=organization: tx.archives.delete(o, m))  # type: ignore[misc] # bound at once
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.archives.save(replace(archive, id=UNKNOWN)))
    found = await any_store.read(lambda tx: tx.archives.find(OTHER_ORG, [archive.id]))
    assert list(found) == []


async def test_some_archives_are_found_by_their_ids(any_store: Store, make: Make) -> None:
    one, two, _ = await add_archives(any_store, make, 3)

    found = await any_store.read(lambda tx: tx.archives.find(ORG, [two.id, UNKNOWN, one.id]))

    assert {archive.id for archive in found} == {one.id, two.id}
    assert list(await any_store.read(lambda tx: tx.archives.find(ORG, []))) == []


async def test_a_saved_archive_replaces_the_old_one(any_store: Store, make: Make) -> None:
    (archive,) = await add_archives(any_store, make, 1)
    changed = replace(archive, name="New", description="d", updated_at=moment(99))

    await any_store.write(lambda tx: tx.archives.save(changed))

    assert await any_store.read(lambda tx: tx.archives.get(ORG, archive.id)) == changed


async def test_archives_are_listed_by_their_whole_name_and_by_agent(
    any_store: Store, make: Make
) -> None:
    one, two = await add_archives(any_store, make, 2, name="Facts")
    (other,) = await add_archives(any_store, make, 1, name="facts")
    (agent,) = await add_agents(any_store, make, 1)
    await any_store.write(lambda tx: tx.archives.attach(agent.id, other.id, moment(1)))

    async def list_ids(**filters: str) -> list[str]:
        query = ArchiveQuery(page=Page(limit=10, order=Order.ASC), **filters)
        rows = await any_store.read(lambda tx: tx.archives.list(ORG, query))
        return [archive.id for archive in rows]

    assert await list_ids() == [one.id, two.id, other.id]
    assert await list_ids(name="Facts") == [one.id, two.id]
    assert await list_ids(agent_id=agent.id) == [other.id]
    assert await list_ids(name="Facts", agent_id=agent.id) == []


async def test_the_default_archive_is_the_own_one_else_the_one_that_was_attached_first(
    any_store: Store, make: Make
) -> None:
    (agent,) = await add_agents(any_store, make, 1)
    late, early, own = await add_archives(any_store, make, 3)

    def work(tx: Transaction) -> None:
        tx.archives.attach(agent.id, late.id, moment(5))
        tx.archives.attach(agent.id, early.id, moment(3))

    await any_store.write(work)
    assert await names_of_agent(any_store, agent) == [early.id, late.id]
    await any_store.write(lambda tx: tx.archives.attach(agent.id, own.id, moment(9), is_owner=True))
    assert await names_of_agent(any_store, agent) == [own.id, early.id, late.id]
    # Attached by hand it is no longer its own, and keeps its place.
    await any_store.write(lambda tx: tx.archives.attach(agent.id, own.id, moment(1)))
    assert await names_of_agent(any_store, agent) == [early.id, late.id, own.id]


async def test_detaching_twice_is_no_error(any_store: Store, make: Make) -> None:
    (agent,) = await add_agents(any_store, make, 1)
    (archive,) = await add_archives(any_store, make, 1)
    await any_store.write(lambda tx: tx.archives.attach(agent.id, archive.id, moment(1)))

    for _ in range(2):
        await any_store.write(lambda tx: tx.archives.detach(agent.id, archive.id))

    assert await names_of_agent(any_store, agent) == []


async def test_an_archive_is_attached_at_the_same_moment_by_many(
    any_store: Store, make: Make
) -> None:
    (agent,) = await add_agents(any_store, make, 1)
    (archive,) = await add_archives(any_store, make, 1)

    await asyncio.gather(
        *(
            any_store.write(lambda tx: tx.archives.attach(agent.id, archive.id, moment(1)))
            for _ in range(10)
        )
    )

    assert await names_of_agent(any_store, agent) == [archive.id]


async def test_an_agent_owns_one_archive_at_most(any_store: Store, make: Make) -> None:
    """Each writer looks first, so the one that loses the race sees the other's archive when it is run again."""
    (agent,) = await add_agents(any_store, make, 1)

    async def insert_first() -> str:
        archive = make.archive()

        def work(tx: Transaction) -> str:
            held = tx.archives.list_of_agents([agent.id])[agent.id]
            if held:
                return held[0].id
            tx.archives.add(archive)
            tx.archives.attach(agent.id, archive.id, moment(1), is_owner=True)
            return archive.id

        return await any_store.write(work)

    used = await asyncio.gather(*(insert_first() for _ in range(10)))

    assert len({*used}) == 1
    everything = ArchiveQuery(page=Page(limit=100))
    stored = await any_store.read(lambda tx: tx.archives.list(ORG, everything))
    assert [archive.id for archive in stored] == [used[0]]


async def test_the_agents_of_an_archive_are_listed(any_store: Store, make: Make) -> None:
    one, two, _ = await add_agents(any_store, make, 3)
    archive, other = await add_archives(any_store, make, 2)

    def work(tx: Transaction) -> None:
        tx.archives.attach(one.id, archive.id, moment(1))
        tx.archives.attach(two.id, archive.id, moment(2))

    await any_store.write(work)

    for held, expected in ((archive, [one.id, two.id]), (other, [])):
        query = AgentQuery(page=Page(limit=10, order=Order.ASC), archive_id=held.id)
        found = await any_store.read(lambda tx, q=query: tx.agents.list(ORG, q))  # type: ignore[misc] # bound at once
        assert [agent.id for agent in found] == expected


async def test_a_deleted_archive_takes_its_passages_and_links_along(
    any_store: Store, make: Make
) -> None:
    (agent,) = await add_agents(any_store, make, 1)
    archive, other = await add_archives(any_store, make, 2)

    def fill(tx: Transaction) -> None:
        tx.archives.attach(agent.id, archive.id, moment(1))
        tx.passages.add([make.passage(archive, tags=("t",)), make.passage(other)])

    await any_store.write(fill)
    await any_store.write(lambda tx: tx.archives.delete(ORG, archive.id))

    assert await names_of_agent(any_store, agent) == []
    left = await any_store.read(lambda tx: tx.passages.list(ORG, PassageFilter(), Page(limit=10)))
    assert [passage.archive_id for passage in left] == [other.id]
    assert await any_store.read(lambda tx: tx.passages.tags_by_agent([agent.id])) == {agent.id: []}


async def test_a_deleted_agent_leaves_its_archive(any_store: Store, make: Make) -> None:
    (agent,) = await add_agents(any_store, make, 1)
    (archive,) = await add_archives(any_store, make, 1)

    def fill(tx: Transaction) -> None:
        tx.archives.attach(agent.id, archive.id, moment(1), is_owner=True)
        tx.passages.add([make.passage(archive)])

    await any_store.write(fill)
    await any_store.write(lambda tx: tx.agents.delete(ORG, agent.id))

    assert await any_store.read(lambda tx: tx.archives.get(ORG, archive.id)) == archive
    where = PassageFilter(archive_ids=(archive.id,))
    left = await any_store.read(lambda tx: tx.passages.list(ORG, where, Page(limit=10)))
    assert len(left) == 1
