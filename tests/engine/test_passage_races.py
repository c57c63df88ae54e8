"""Passages that are stored by many at the same moment."""

import asyncio

from tests.support.rig import ACTOR, Rig

from holdfast.core.archives import Archive
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Page
from holdfast.core.passages import PassageFilter
from holdfast.errors import NotFound
from holdfast.ports.store import Store
from holdfast.usecases import archives, passages
from holdfast.usecases.archives import NewArchive
from holdfast.usecases.passages import NewPassage

ORG = DEFAULT_ORGANIZATION_ID


async def make_archive(rig: Rig) -> Archive:
    return await archives.create(rig.services, ACTOR, NewArchive(name="notes"))


async def count(store: Store) -> int:
    page = Page(limit=1_000)
    return len(await store.read(lambda tx: tx.passages.list(ORG, PassageFilter(), page)))


async def test_a_text_that_ten_store_once_is_stored_once(any_store: Store) -> None:
    rig = Rig(any_store)
    archive = await make_archive(rig)

    async def insert_by_ten(text: str) -> set[str]:
        items = [NewPassage(text=text)]
        stored = await asyncio.gather(
            *(
                passages.insert(rig.services, ACTOR, archive.id, items, deduplicate=True)
                for _ in range(10)
            )
        )
        return {passage.id for (passage,) in stored}

    # Again and again, since they may also be one after another by chance.
    for number in range(20):
        assert len(await insert_by_ten(f"text {number}")) == 1
    assert await count(any_store) == 20


async def test_ten_first_passages_of_an_agent_are_in_one_archive(any_store: Store) -> None:
    rig = Rig(any_store)
    agent = await rig.make_agent()

    stored = await asyncio.gather(
        *(
            passages.insert_for_agent(rig.services, ACTOR, agent.id, NewPassage(text=str(number)))
            for number in range(10)
        )
    )

    assert len({passage.archive_id for passage in stored}) == 1
    assert await count(any_store) == 10


async def test_a_passage_for_an_archive_that_is_deleted_meanwhile_is_stored_or_refused(
    any_store: Store,
) -> None:
    rig = Rig(any_store)
    archive = await make_archive(rig)

    async def insert() -> bool:
        try:
            await passages.insert(rig.services, ACTOR, archive.id, [NewPassage(text="late")])
        except NotFound:
            return False
        return True

    async def delete() -> None:
        await archives.delete(rig.services, ACTOR, archive.id)

    await asyncio.gather(*(insert() for _ in range(5)), delete(), *(insert() for _ in range(5)))

    assert await count(any_store) == 0
    assert await insert() is False
