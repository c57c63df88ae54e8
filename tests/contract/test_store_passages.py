"""Passages: stored, listed, found and deleted. What the words of a query match is shown in the tests of the index."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support.values import Make, ident, moment

from holdfast.adapters.store import tables
from holdfast.core.agents import Agent
from holdfast.core.archives import Archive
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Order, Page
from holdfast.core.passages import Passage, PassageFilter
from holdfast.errors import InvalidArgument, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
OTHER_ORG = "org-11111111-1111-4111-8111-111111111111"
UNKNOWN = "passage-99999999-9999-4999-8999-999999999999"
ASC, DESC = Order.ASC, Order.DESC


async def add_archive(store: Store, make: Make, *agents: Agent) -> Archive:
    archive = make.archive()

    def work(tx: Transaction) -> None:
        tx.archives.add(archive)
        for agent in agents:
            tx.archives.attach(agent.id, archive.id, moment(0))

    await store.write(work)
    return archive


async def add_agent(store: Store, make: Make) -> Agent:
    agent = make.agent()

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(make.thread(agent))

    await store.write(work)
    return agent


async def add(store: Store, *passages: Passage) -> Sequence[Passage]:
    return await store.write(lambda tx: tx.passages.add(passages))


async def list_texts(store: Store, page: Page | None = None, **where: Any) -> list[str]:
    found = await store.read(
        lambda tx: tx.passages.list(ORG, PassageFilter(**where), page or Page(limit=100, order=ASC))
    )
    return [passage.text for passage in found]


async def search_texts(store: Store, query: str, limit: int = 10, **where: Any) -> list[str]:
    found = await store.read(
        lambda tx: tx.passages.search(ORG, PassageFilter(**where), query, limit)
    )
    return [item.passage.text for item in found]


async def test_a_passage_is_kept_with_all_its_fields(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    passage = make.passage(
        archive,
        " As given.\n",
        tags=("b", "a"),
        metadata={"k": {"n": 1.5}},
        run_id="run-1",
        step_id="step-1",
        created_by_id="user-1",
        last_updated_by_id="user-2",
    )

    (stored,) = await add(any_store, passage)

    assert stored.position > 0
    assert await any_store.read(lambda tx: tx.passages.get(ORG, passage.id)) == stored
    assert stored.text == " As given.\n"
    assert stored.tags == ("b", "a")


async def test_positions_increase_and_are_not_reused(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    first, second = await add(any_store, make.passage(archive), make.passage(archive))
    await any_store.write(lambda tx: tx.passages.delete(ORG, second.id))

    (third,) = await add(any_store, make.passage(archive))

    assert first.position < second.position < third.position


async def test_nul_characters_are_removed_from_texts(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)

    (stored,) = await add(any_store, make.passage(archive, "one\0two\0"))

    assert stored.text == "onetwo"
    same = await any_store.read(lambda tx: tx.passages.find_same(archive.id, "one\0two"))
    assert same == stored


async def test_a_tag_with_nul_is_refused_and_nothing_is_stored(
    any_store: Store, make: Make
) -> None:
    archive = await add_archive(any_store, make)

    with pytest.raises(InvalidArgument, match="NUL"):
        await add(any_store, make.passage(archive), make.passage(archive, tags=("a\0",)))

    assert await list_texts(any_store) == []


async def test_a_passage_of_another_organization_does_not_exist(
    any_store: Store, make: Make
) -> None:
    archive = await add_archive(any_store, make)
    (stored,) = await add(any_store, make.passage(archive))

    for organization, passage_id in ((OTHER_ORG, stored.id), (ORG, UNKNOWN)):
        text = f"Passage with id {passage_id} not found in database."
        with pytest.raises(NotFound, match=text):
            await any_store.read(lambda tx, o=organization, p=passage_id: tx.passages.get(o, p))  # type: ignore[misc] # bound at once
        with pytest.raises(NotFound, match=text):
            await any_store.write(lambda tx, o=organization, p=passage_id: tx.passages.delete(o, p))  # type: ignore[misc] # bound at once
    assert (
        await any_store.write(lambda tx: tx.passages.delete_matching(OTHER_ORG, PassageFilter()))
        == 0
    )
    found = await any_store.read(
        lambda tx: tx.passages.search(OTHER_ORG, PassageFilter(), "fact", 10)
    )
    assert list(found) == []


async def test_a_passage_needs_an_archive_that_exists(any_store: Store, make: Make) -> None:
    with pytest.raises(NotFound):
        await add(any_store, make.passage(make.archive()))


async def test_the_same_text_is_found_whatever_its_case_and_spaces(
    any_store: Store, make: Make
) -> None:
    archive, other = await add_archive(any_store, make), await add_archive(any_store, make)
    first, *_ = await add(
        any_store,
        make.passage(archive, "Anna  likes\nTea"),
        make.passage(archive, "anna likes tea"),
        make.passage(other, "Bert likes tea"),
    )

    async def find(text: str) -> Passage | None:
        return await any_store.read(lambda tx: tx.passages.find_same(archive.id, text))

    assert await find(" ANNA likes tea ") == first
    assert await find("Bert likes tea") is None
    assert await find("Anna likes teas") is None


async def test_passages_are_listed_by_every_filter(any_store: Store, make: Make) -> None:
    archive, other = await add_archive(any_store, make), await add_archive(any_store, make)
    await add(
        any_store,
        make.passage(archive, "Grüße 50%", tags=("a",), created_at=moment(1)),
        make.passage(archive, "two_words", tags=("a", "b"), created_at=moment(2)),
        make.passage(other, "three words", created_at=moment(3)),
    )

    assert await list_texts(any_store) == ["Grüße 50%", "two_words", "three words"]
    assert await list_texts(any_store, archive_ids=(archive.id,)) == ["Grüße 50%", "two_words"]
    assert await list_texts(any_store, archive_ids=()) == []
    assert await list_texts(any_store, tags=("a", "c")) == ["Grüße 50%", "two_words"]
    assert await list_texts(any_store, tags=("a", "b"), match_all_tags=True) == ["two_words"]
    assert await list_texts(any_store, tags=("A",)) == []
    assert await list_texts(any_store, archive_ids=(other.id,), tags=("a",)) == []
    assert await list_texts(any_store, since=moment(2)) == ["two_words", "three words"]
    assert await list_texts(any_store, until=moment(2)) == ["Grüße 50%", "two_words"]
    assert await list_texts(any_store, since=moment(3), until=moment(1)) == []
    assert await list_texts(any_store, contains="GRÜSSE") == []
    assert await list_texts(any_store, contains="GRÜ") == ["Grüße 50%"]
    assert await list_texts(any_store, contains="%") == ["Grüße 50%"]
    assert await list_texts(any_store, contains="_") == ["two_words"]
    assert await list_texts(any_store, contains="o w") == []
    assert await list_texts(any_store, contains="") == ["Grüße 50%", "two_words", "three words"]


async def add_five(store: Store, make: Make) -> list[Passage]:
    """The second to the fourth have the same time, so that only their ids differ; sorted by time and id."""
    archive = await add_archive(store, make)
    passages = [
        make.passage(archive, str(number), created_at=moment(2 if number in (1, 2, 3) else number))
        for number in (0, 1, 2, 3, 4)
    ]
    # In another order than that of their ids.
    stored = await add(store, *(passages[number] for number in (3, 0, 4, 2, 1)))
    return sorted(stored, key=lambda passage: (passage.created_at, passage.id))


@pytest.mark.parametrize("order", [ASC, DESC])
async def test_after_means_newer_and_before_older_in_both_orders(
    any_store: Store, make: Make, order: Order
) -> None:
    stored = await add_five(any_store, make)
    texts = [passage.text for passage in stored]

    async def list_sorted(**cursor: str) -> list[str]:
        found = await list_texts(any_store, Page(limit=100, order=order, **cursor))
        return found if order is ASC else found[::-1]

    assert await list_sorted() == texts
    for number, passage in enumerate(stored):
        assert await list_sorted(after=passage.id) == texts[number + 1 :]
        assert await list_sorted(before=passage.id) == texts[:number]
    assert await list_sorted(after=stored[0].id, before=stored[4].id) == texts[1:4]


@pytest.mark.parametrize("order", [ASC, DESC])
async def test_pages_have_each_passage_once(any_store: Store, make: Make, order: Order) -> None:
    texts = [passage.text for passage in await add_five(any_store, make)]
    expected = texts if order is ASC else texts[::-1]
    seen: list[Passage] = []
    while True:
        # The next page in the given order: newer ones, or older ones.
        last = seen[-1].id if seen else None
        page = (
            Page(limit=2, order=order, after=last)
            if order is ASC
            else Page(limit=2, order=order, before=last)
        )
        found = await any_store.read(
            lambda tx, page=page: tx.passages.list(ORG, PassageFilter(), page)  # type: ignore[misc] # bound at once
        )
        if not found:
            break
        seen += found

    assert [passage.text for passage in seen] == expected


@pytest.mark.parametrize("order", [ASC, DESC])
async def test_the_cursors_of_a_page_are_relative_to_its_order(
    any_store: Store, make: Make, order: Order
) -> None:
    stored = await add_five(any_store, make)
    expected = [passage.id for passage in (stored if order is ASC else stored[::-1])]

    async def list_page(limit: int = 100, **cursor: str) -> list[str]:
        page = Page(limit=limit, order=order, **cursor)
        where = PassageFilter(archive_ids=(str(stored[0].archive_id),))
        found = await any_store.read(lambda tx: tx.passages.list_page(ORG, where, page))
        return [passage.id for passage in found]

    assert await list_page() == expected
    assert await list_page(2, after=expected[1]) == expected[2:4]
    assert await list_page(2, before=expected[3]) == expected[1:3]
    with pytest.raises(NotFound, match=f"No Passage found with id {UNKNOWN}"):
        await list_page(after=UNKNOWN)


async def test_an_unknown_cursor_is_not_found(any_store: Store, make: Make) -> None:
    await add_five(any_store, make)

    for page in (Page(limit=10, after=UNKNOWN), Page(limit=10, before=UNKNOWN)):
        with pytest.raises(NotFound, match=f"No Passage found with id {UNKNOWN}"):
            await list_texts(any_store, page)


async def test_dates_far_away_are_kept(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    old = moment(0).replace(year=2)
    late = moment(0).replace(year=9998)

    await add(
        any_store,
        make.passage(archive, "late", created_at=late),
        make.passage(archive, "old", created_at=old),
    )

    assert await list_texts(any_store) == ["old", "late"]
    assert await list_texts(any_store, since=late, until=late) == ["late"]


async def test_filters_apply_before_the_limit_of_a_search(any_store: Store, make: Make) -> None:
    archive, other = await add_archive(any_store, make), await add_archive(any_store, make)
    await add(
        any_store,
        make.passage(archive, "wanted apple", tags=("fruit",), created_at=moment(1)),
        *(make.passage(archive, "apple apple", created_at=moment(50)) for _ in range(20)),
        *(make.passage(other, "apple", created_at=moment(50)) for _ in range(20)),
    )

    assert await search_texts(any_store, "apple", 1, tags=("fruit",)) == ["wanted apple"]
    assert await search_texts(any_store, "apple", 1, until=moment(1)) == ["wanted apple"]
    assert await search_texts(any_store, "apple", 3, archive_ids=(other.id,)) == ["apple"] * 3
    assert await search_texts(any_store, "apple", 3, archive_ids=()) == []
    assert await search_texts(any_store, "apple", 3, since=moment(9), until=moment(8)) == []


async def test_a_search_may_cover_a_thousand_archives(any_store: Store, make: Make) -> None:
    archives = [make.archive() for _ in range(1_000)]

    def fill(tx: Transaction) -> None:
        for archive in archives:
            tx.archives.add(archive)
        tx.passages.add([make.passage(archives[number], "apple") for number in (0, 500, 999)])

    await any_store.write(fill)
    everywhere = tuple(archive.id for archive in archives)

    assert await search_texts(any_store, "apple", archive_ids=everywhere) == ["apple"] * 3
    assert await list_texts(any_store, archive_ids=everywhere) == ["apple"] * 3


async def test_what_matches_is_deleted_in_parts(any_store: Store, make: Make) -> None:
    archive, other = await add_archive(any_store, make), await add_archive(any_store, make)
    await add(
        any_store,
        *(make.passage(archive, "gone", tags=("t",)) for _ in range(5)),
        make.passage(archive, "no tag"),
        make.passage(other, "elsewhere", tags=("t",)),
    )
    where = PassageFilter(archive_ids=(archive.id,), tags=("t",))

    counts = [
        await any_store.write(lambda tx: tx.passages.delete_matching(ORG, where, 2))
        for _ in range(4)
    ]

    assert counts == [2, 2, 1, 0]
    assert await list_texts(any_store) == ["no tag", "elsewhere"]
    assert await search_texts(any_store, "gone") == []


async def test_what_a_run_has_written_is_deleted(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    await add(
        any_store,
        make.passage(archive, "mine", run_id=ident("run", 1)),
        make.passage(archive, "other", run_id=ident("run", 2)),
        make.passage(archive, "nobody's"),
    )

    assert await any_store.write(lambda tx: tx.passages.delete_of_run(ident("run", 1))) == 1
    assert await list_texts(any_store) == ["other", "nobody's"]


async def test_passages_and_tags_are_counted_over_all_archives_of_an_agent(
    any_store: Store, make: Make
) -> None:
    agent, stranger = await add_agent(any_store, make), await add_agent(any_store, make)
    one = await add_archive(any_store, make, agent)
    two = await add_archive(any_store, make, agent)
    alone = await add_archive(any_store, make)
    await add(
        any_store,
        make.passage(one, tags=("b", "a")),
        make.passage(two, tags=("a", "C")),
        make.passage(alone, tags=("hidden",)),
    )
    ids = [agent.id, stranger.id]

    counts = await any_store.read(lambda tx: tx.passages.count_by_agent(ids))
    tags = await any_store.read(lambda tx: tx.passages.tags_by_agent(ids))

    assert counts == {agent.id: 2, stranger.id: 0}
    assert tags == {agent.id: ["C", "a", "b"], stranger.id: []}


async def test_the_bytes_of_vectors_are_counted(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    stored = await add(any_store, make.passage(archive), make.passage(archive))

    def count(tx: Transaction) -> tuple[int, int]:
        return tx.passages.count_vector_bytes(ORG), tx.messages.count_vector_bytes(ORG)

    assert await any_store.read(count) == (0, 0)

    def add_vectors(tx: Any) -> None:
        for passage, dimensions in zip(stored, (3, 5), strict=True):
            row = {
                "position": passage.position,
                "container_id": archive.id,
                "model": "m/m",
                "dimensions": dimensions,
                "vector": b"1234" * dimensions,
            }
            tx._connection.execute(tables.passage_vectors.insert(), row)

    await any_store.write(add_vectors)

    assert await any_store.read(count) == (32, 0)
    assert await any_store.read(lambda tx: tx.passages.count_vector_bytes(OTHER_ORG)) == 0


async def test_one_of_two_that_look_for_the_same_text_waits_for_the_other(
    any_store: Store, make: Make
) -> None:
    archive = await add_archive(any_store, make)
    passages = [make.passage(archive, "The same.") for _ in range(10)]

    async def insert_once(passage: Passage) -> None:
        def work(tx: Transaction) -> None:
            tx.archives.get_for_update(ORG, archive.id)
            if tx.passages.find_same(archive.id, passage.text) is None:
                tx.passages.add([passage])

        await any_store.write(work)

    await asyncio.gather(*map(insert_once, passages))

    assert await list_texts(any_store) == ["The same."]


async def test_the_newest_moment_is_kept_to_the_microsecond(any_store: Store, make: Make) -> None:
    archive = await add_archive(any_store, make)
    at = moment(1) + timedelta(microseconds=1)

    (stored,) = await add(any_store, make.passage(archive, created_at=at))

    assert stored.created_at == at
    assert await list_texts(any_store, since=at + timedelta(microseconds=1)) == []
