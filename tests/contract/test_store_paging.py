"""Paging: the same rule for every list except the message history (wire-v1 §1.10)."""

from collections.abc import Callable, Sequence

import pytest
from tests.support.values import Make, moment

from holdfast.core.agents import AgentQuery
from holdfast.core.blocks import BlockQuery
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Order, Page
from holdfast.core.runs import RunQuery
from holdfast.core.steps import StepQuery
from holdfast.core.tools import ToolQuery
from holdfast.errors import InvalidArgument, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ASC, DESC = Order.ASC, Order.DESC

Walk = Callable[[Transaction, Page], Sequence[str]]


def _ids(rows: Sequence[object]) -> list[str]:
    return [getattr(row, "id") for row in rows]  # noqa: B009 - the kinds share only this name


LISTS: dict[str, Walk] = {
    "agents": lambda tx, page: _ids(tx.agents.list(ORG, AgentQuery(page=page))),
    "tools": lambda tx, page: _ids(tx.tools.list(ORG, ToolQuery(page=page))),
    "blocks": lambda tx, page: _ids(tx.blocks.list(ORG, BlockQuery(page=page))),
    "runs": lambda tx, page: _ids(tx.runs.list(ORG, RunQuery(page=page))),
    "steps": lambda tx, page: _ids(tx.steps.list(ORG, StepQuery(page=page))),
}
every_list = pytest.mark.parametrize("walk", LISTS.values(), ids=LISTS.keys())


async def fill(store: Store, make: Make) -> None:
    """Five of each kind. The second to the fourth have the same time, so that only their ids differ."""

    def work(tx: Transaction) -> None:
        for number in range(5):
            at = moment(2 if number in (1, 2, 3) else number + 1)
            agent = make.agent(created_at=at)
            tx.agents.add(agent)
            tx.threads.add(make.thread(agent))
            tx.tools.add(make.tool(created_at=at))
            tx.blocks.add(make.block(created_at=at))
            run = make.run(make.thread(agent), created_at=at)
            tx.runs.add(run)
            tx.steps.add(make.step(run, created_at=at))

    await store.write(work)


@every_list
@pytest.mark.parametrize("order", [ASC, DESC])
async def test_after_pages_through_everything_once(
    any_store: Store, make: Make, walk: Walk, order: Order
) -> None:
    await fill(any_store, make)
    everything = await any_store.read(lambda tx: walk(tx, Page(limit=50, order=order)))
    assert len(everything) == 5
    assert everything == sorted(everything, reverse=order is DESC)
    seen: list[str] = []
    cursor: str | None = None
    while page := await _page(any_store, walk, Page(limit=2, order=order, after=cursor)):
        seen += page
        cursor = page[-1]
    assert seen == everything


@every_list
@pytest.mark.parametrize("order", [ASC, DESC])
async def test_before_gives_the_nearest_rows_in_sort_order(
    any_store: Store, make: Make, walk: Walk, order: Order
) -> None:
    await fill(any_store, make)
    everything = await _page(any_store, walk, Page(limit=50, order=order))
    page = Page(limit=2, order=order, before=everything[4])
    assert await _page(any_store, walk, page) == everything[2:4]
    page = Page(limit=2, order=order, before=everything[1])
    assert await _page(any_store, walk, page) == everything[:1]
    page = Page(limit=2, order=order, before=everything[0])
    assert await _page(any_store, walk, page) == []


@every_list
async def test_both_cursors_bound_the_page(any_store: Store, make: Make, walk: Walk) -> None:
    await fill(any_store, make)
    everything = await _page(any_store, walk, Page(limit=50, order=ASC))
    page = Page(limit=50, order=ASC, after=everything[0], before=everything[4])
    assert await _page(any_store, walk, page) == everything[1:4]


@pytest.mark.parametrize("name", ["tools", "runs", "steps"])
async def test_an_unknown_cursor_is_not_found(any_store: Store, make: Make, name: str) -> None:
    await fill(any_store, make)
    kind = name.removesuffix("s").title()
    for page in (Page(limit=5, after="nobody"), Page(limit=5, before="nobody")):
        with pytest.raises(NotFound, match=f"No {kind} found with id nobody"):
            await _page(any_store, LISTS[name], page)


@pytest.mark.parametrize("name", ["agents", "blocks"])
async def test_agents_and_blocks_ignore_an_unknown_cursor(
    any_store: Store, make: Make, name: str
) -> None:
    await fill(any_store, make)
    assert len(await _page(any_store, LISTS[name], Page(limit=9, after="nobody"))) == 5
    assert len(await _page(any_store, LISTS[name], Page(limit=9, before="nobody"))) == 5


async def test_a_cursor_of_another_organisation_is_unknown(any_store: Store, make: Make) -> None:
    theirs = make.tool(organization_id="org-other")
    await any_store.write(lambda tx: tx.tools.add(theirs))
    with pytest.raises(NotFound):
        await _page(any_store, LISTS["tools"], Page(limit=5, after=theirs.id))


async def test_a_list_cannot_be_sorted_by_an_unknown_key(any_store: Store) -> None:
    for walk in LISTS.values():
        with pytest.raises(InvalidArgument, match="Cannot sort by shoe_size"):
            await _page(any_store, walk, Page(limit=5, order_by="shoe_size"))


@pytest.mark.parametrize("order", [ASC, DESC])
async def test_agents_that_never_ran_come_last(any_store: Store, make: Make, order: Order) -> None:
    never, early, late = (make.agent() for _ in range(3))
    also_never = make.agent()

    def work(tx: Transaction) -> None:
        for agent in (never, early, late, also_never):
            tx.agents.add(agent)
        for number, agent in enumerate((early, late)):
            tx.agents.set_last_run(
                agent.id, stop_reason="end_turn", completed_at=moment(number), duration_ms=1
            )

    await any_store.write(work)
    ran = [early.id, late.id] if order is ASC else [late.id, early.id]
    rest = sorted([never.id, also_never.id], reverse=order is DESC)
    seen: list[str] = []
    for _ in range(4):
        cursor = seen[-1] if seen else None
        page = Page(limit=1, order=order, order_by="last_run_completion", after=cursor)
        seen += await _page(any_store, LISTS["agents"], page)
    assert seen == ran + rest
    page = Page(limit=9, order=order, order_by="last_run_completion", before=rest[0])
    assert await _page(any_store, LISTS["agents"], page) == ran


async def _page(store: Store, walk: Walk, page: Page) -> Sequence[str]:
    return await store.read(lambda tx: walk(tx, page))
