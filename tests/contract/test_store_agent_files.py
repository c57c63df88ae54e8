"""Folders and files of agents in the store, and the marks of stale system messages."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.values import Make, add_file, ident, moment

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.agent_files import AttachedFile
from holdfast.core.agents import Agent
from holdfast.core.files import AgentFile, File, Folder
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import Signal
from holdfast.core.paging import Order, Page
from holdfast.errors import NotFound
from holdfast.ports.store import Transaction

ORG = DEFAULT_ORGANIZATION_ID
PATIENCE_SECONDS = 20


async def add_agent(store: SqlStore, make: Make) -> Agent:
    agent = make.agent()

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(make.thread(agent))
        tx.threads.add(make.thread(agent, id=f"conv-of-{agent.id}"))

    await store.write(work)
    return agent


async def add_folder(store: SqlStore, make: Make, *agents: Agent, **fields: Any) -> Folder:
    folder = make.folder(**fields)

    def work(tx: Transaction) -> None:
        tx.folders.add(folder)
        for agent in agents:
            tx.agent_files.attach_folder(agent.id, folder.id, moment(0))

    await store.write(work)
    return folder


def link(agent: Agent, file: File, number: int, **fields: Any) -> AgentFile:
    values: dict[str, Any] = {
        "id": ident("file_agent", number),
        "agent_id": agent.id,
        "file_id": file.id,
        "created_at": moment(number),
        "last_accessed_at": moment(number),
    }
    return AgentFile(**values | fields)


async def linked(store: SqlStore, agent: Agent) -> list[AttachedFile]:
    found = await store.read(lambda tx: tx.agent_files.list_of_agents([agent.id]))
    return list(found[agent.id])


async def read_page(store: SqlStore, agent: Agent, page: Page) -> Sequence[AttachedFile]:
    return await store.read(lambda tx: tx.agent_files.page(agent.id, page))


async def test_a_folder_is_attached_once_and_detached_with_its_files(
    any_store: SqlStore, make: Make
) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    second = await add_folder(any_store, make, agent, name="b")
    first = await add_folder(any_store, make, agent, other, name="a")
    file = await add_file(any_store, make, first, "one\ntwo")
    await any_store.write(lambda tx: tx.agent_files.attach_folder(agent.id, first.id, moment(1)))
    links = [link(agent, file, 1, is_open=True), link(other, file, 2)]
    await any_store.write(lambda tx: tx.agent_files.link(links))
    folders = await any_store.read(lambda tx: tx.agent_files.folders([agent.id, other.id]))
    assert folders == {agent.id: [first, second], other.id: [first]}
    (attached,) = await linked(any_store, agent)
    assert (attached.state, attached.file, attached.name) == (links[0], file, f"a/{file.name}")
    assert (attached.lines, attached.characters) == (2, 7)

    def detach(tx: Transaction) -> bool:
        return tx.agent_files.detach_folder(agent.id, first.id)

    assert await any_store.write(detach) is True
    assert await any_store.write(detach) is False
    assert await linked(any_store, agent) == []
    assert len(await linked(any_store, other)) == 1
    assert await any_store.read(lambda tx: tx.agent_files.agent_ids(file.id)) == [other.id]


async def test_a_file_that_is_linked_again_stays_as_it_is(any_store: SqlStore, make: Make) -> None:
    agent = await add_agent(any_store, make)
    folder = await add_folder(any_store, make, agent)
    file = await add_file(any_store, make, folder, "text")
    first = link(agent, file, 1, is_open=True, start_line=1, end_line=1)
    await any_store.write(lambda tx: tx.agent_files.link([first]))
    await any_store.write(lambda tx: tx.agent_files.link([link(agent, file, 2)]))
    assert [item.state for item in await linked(any_store, agent)] == [first]
    ids = await any_store.read(lambda tx: tx.agent_files.linked_ids(agent.id, folder.id))
    assert list(ids) == [file.id]


async def test_what_an_agent_sees_of_a_file_is_saved_and_when_it_used_it(
    any_store: SqlStore, make: Make
) -> None:
    agent = await add_agent(any_store, make)
    folder = await add_folder(any_store, make, agent)
    files = [await add_file(any_store, make, folder, "text") for _ in range(2)]
    links = [link(agent, file, number) for number, file in enumerate(files, 1)]
    await any_store.write(lambda tx: tx.agent_files.link(links))
    opened = link(
        agent, files[0], 1, is_open=True, start_line=2, end_line=3, last_accessed_at=moment(9)
    )
    await any_store.write(lambda tx: tx.agent_files.save(opened))
    await any_store.write(lambda tx: tx.agent_files.touch(agent.id, [files[1].id], moment(10)))
    first, second = await linked(any_store, agent)
    assert first.state == opened
    assert (second.state.is_open, second.state.last_accessed_at) == (False, moment(10))
    assert await any_store.read(lambda tx: tx.agent_files.list_open(agent.id)) == [opened]
    got = await any_store.read(lambda tx: tx.agent_files.get(agent.id, files[0].id))
    assert got == first


@pytest.mark.parametrize("by_file_id", [True, False])
@pytest.mark.parametrize("order", [Order.ASC, Order.DESC])
async def test_pages_of_files_follow_each_other_by_both_kinds_of_cursors(
    any_store: SqlStore, make: Make, order: Order, by_file_id: bool
) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    folder = await add_folder(any_store, make, agent, other)
    files = [await add_file(any_store, make, folder, "text") for _ in range(5)]
    # Ids do not follow the times.
    links = [
        link(agent, file, 10 - number, created_at=moment(number), is_open=number % 2 == 0)
        for number, file in enumerate(files)
    ]
    await any_store.write(
        lambda tx: tx.agent_files.link([*links, link(other, files[0], 20, created_at=moment(2))])
    )
    seen: list[AgentFile] = []
    after: str | None = None
    while found := await read_page(any_store, agent, Page(limit=2, order=order, after=after)):
        seen += [item.state for item in found]
        after = seen[-1].file_id if by_file_id else seen[-1].id
    assert seen == (links if order is Order.ASC else links[::-1])
    back = Page(limit=2, order=order, before=seen[-1].id)
    found = await read_page(any_store, agent, back)
    assert [item.state for item in found] == seen[2:4]
    is_open = await any_store.read(
        lambda tx: tx.agent_files.page(agent.id, Page(limit=9, order=Order.ASC), is_open=True)
    )
    assert [item.state for item in is_open] == links[::2]
    for cursor in (ident("file_agent", 20), ident("file", 999)):
        with pytest.raises(NotFound, match=cursor):
            await read_page(any_store, agent, Page(limit=2, after=cursor))


async def test_deleted_files_and_folders_are_not_among_those_of_an_agent(
    any_store: SqlStore, make: Make
) -> None:
    agent = await add_agent(any_store, make)
    folder, doomed = [await add_folder(any_store, make, agent) for _ in range(2)]
    gone, kept = [await add_file(any_store, make, folder, "text") for _ in range(2)]
    lost = await add_file(any_store, make, doomed, "text")
    links = [link(agent, file, number) for number, file in enumerate((gone, kept, lost), 1)]
    await any_store.write(lambda tx: tx.agent_files.link(links))
    await any_store.write(lambda tx: tx.files.delete(ORG, gone.id))
    await any_store.write(lambda tx: tx.folders.delete(ORG, doomed.id, moment(1)))
    assert [item.file for item in await linked(any_store, agent)] == [kept]
    folders = await any_store.read(lambda tx: tx.agent_files.folders([agent.id]))
    assert folders == {agent.id: [folder]}
    page = Page(limit=5)
    listed = await any_store.read(lambda tx: tx.agent_files.page_of_folders(ORG, agent.id, page))
    assert listed == [folder]
    with pytest.raises(NotFound, match=f"File with id={gone.id} not found"):
        await any_store.read(lambda tx: tx.agent_files.get(agent.id, gone.id))


async def test_all_threads_of_an_agent_are_marked_and_each_is_taken_once(
    any_store: SqlStore, make: Make
) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    await any_store.write(lambda tx: tx.stale_prompts.mark([agent.id]))
    await any_store.write(lambda tx: tx.stale_prompts.mark([agent.id]))
    await any_store.write(lambda tx: tx.stale_prompts.mark([]))
    conversation = f"conv-of-{agent.id}"
    assert await any_store.read(lambda tx: tx.stale_prompts.is_stale(conversation))
    assert not await any_store.read(lambda tx: tx.stale_prompts.is_stale(other.id))
    assert await any_store.write(lambda tx: tx.stale_prompts.take(agent.id))
    assert not await any_store.write(lambda tx: tx.stale_prompts.take(agent.id))
    assert await any_store.write(lambda tx: tx.stale_prompts.take(conversation))


async def test_threads_that_are_left_out_are_not_marked(any_store: SqlStore, make: Make) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    both = [agent.id, other.id]
    await any_store.write(
        lambda tx: tx.stale_prompts.mark(both, except_threads={agent.id, f"conv-of-{other.id}"})
    )
    marks = {
        thread: await any_store.read(lambda tx, name=thread: tx.stale_prompts.is_stale(name))  # type: ignore[misc]  # the default binds the loop's value
        for thread in (*both, *(f"conv-of-{agent_id}" for agent_id in both))
    }
    assert list(marks.values()) == [False, True, True, False]


async def test_the_lock_of_a_run_tells_whether_the_system_message_is_stale(
    any_store: SqlStore, make: Make
) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    run = make.run(make.thread(agent))

    def begin(tx: Transaction) -> bool:
        tx.runs.transition(tx.runs.add(run), Signal.CLAIM)
        tx.stale_prompts.mark([other.id])
        return tx.runs.lock(run)

    assert await any_store.write(begin) is False
    await any_store.write(lambda tx: tx.stale_prompts.mark([agent.id]))
    assert await any_store.write(lambda tx: tx.runs.lock(run)) is True
    await any_store.write(lambda tx: tx.stale_prompts.take(agent.id))
    assert await any_store.write(lambda tx: tx.runs.lock(run)) is False


async def test_a_mark_that_is_set_again_while_it_is_taken_is_not_lost(
    any_store: SqlStore, make: Make
) -> None:
    """Whoever takes the mark either waits for the change and sees it, or leaves the mark of the change."""
    agent = await add_agent(any_store, make)
    folder = await add_folder(any_store, make, agent)
    file = await add_file(any_store, make, folder, "text")
    await any_store.write(lambda tx: tx.agent_files.link([link(agent, file, 1)]))
    await any_store.write(lambda tx: tx.stale_prompts.mark([agent.id]))
    marked, has_read = threading.Event(), threading.Event()

    def change(tx: Transaction) -> None:
        tx.agent_files.save(link(agent, file, 1, is_open=True))
        tx.stale_prompts.mark([agent.id])
        marked.set()
        # Time for the other one to read, if nothing makes it wait.
        has_read.wait(0.3)

    def take(tx: Transaction) -> bool:
        tx.stale_prompts.take(agent.id)
        is_open = bool(tx.agent_files.list_open(agent.id))
        has_read.set()
        return is_open

    changing = asyncio.create_task(any_store.write(change))
    assert await asyncio.to_thread(marked.wait, PATIENCE_SECONDS)
    sees_change = await asyncio.wait_for(any_store.write(take), PATIENCE_SECONDS)
    await changing
    is_stale = await any_store.read(lambda tx: tx.stale_prompts.is_stale(agent.id))
    assert sees_change or is_stale
