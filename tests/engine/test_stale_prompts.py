"""A system message that shows an old state of the files is compiled again before the model is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from tests.doubles.model import call_answer, text_answer
from tests.doubles.store import CrashingStore, OutageStore
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.engine_runs import assert_sound, compact_thread, run_until_crash
from tests.support.rig import ACTOR, Rig
from tests.support.values import Make, add_file

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.core.agents import Agent
from holdfast.core.files import File, Folder
from holdfast.core.messages import Role, ToolReturn
from holdfast.core.runs import RunStatus
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.ports.model import Answer, Question
from holdfast.ports.store import Store, Transaction
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import agent_files


class ActingToolbox(ScriptedToolbox):
    """Does something while its tool runs, each time the next thing."""

    def __init__(self, *actions: Callable[[], Awaitable[object]]) -> None:
        super().__init__(builtin=[item.spec for item in BUILTIN.values()])
        self.actions = list(actions)

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        if self.actions:
            await self.actions.pop(0)()
        return await super().run(tool, planned, context)


async def do_nothing() -> None: ...


def use_toolbox(rig: Rig, *actions: Callable[[], Awaitable[object]]) -> None:
    rig.services = replace(rig.services, toolbox=ActingToolbox(*actions))


async def add_folder(
    store: Store, make: Make, name: str = "docs", **fields: Any
) -> tuple[Folder, File]:
    """A folder and the file in it."""
    folder = make.folder(name=name)
    await store.write(lambda tx: tx.folders.add(folder))
    return folder, await add_file(store, make, folder, "first\nsecond", name="a.txt", **fields)


def prompts(rig: Rig) -> list[str]:
    return [question.history[0].text for question in rig.model.questions]


def status_in(prompt: str) -> str | None:
    """What the system message shows of the file."""
    for status in ("open", "closed"):
        if f'<file status="{status}" name="docs/a.txt">' in prompt:
            return status
    return None


async def is_stale(rig: Rig, agent: Agent) -> bool:
    return await rig.read(lambda tx: tx.stale_prompts.is_stale(agent.id))


async def test_each_change_is_in_the_next_question_of_the_same_turn(
    store: SqliteStore, make: Make
) -> None:
    rig = Rig(store)
    agent = await rig.make_agent("roll")
    folder, file = await add_folder(store, make)
    services = rig.services
    use_toolbox(
        rig,
        lambda: agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id),
        lambda: agent_files.close_file(services, ACTOR, agent.id, file.id),
        do_nothing,
        lambda: agent_files.detach_folder(services, ACTOR, agent.id, folder.id),
    )
    rig.model.script = [call_answer((f"c{number}", "roll")) for number in range(4)]
    async with rig.run_worker():
        await rig.say(agent)
    seen = prompts(rig)
    assert [status_in(text) for text in seen] == [None, "open", "closed", "closed", None]
    # Without a change it stays as it is, so that providers can use their caches.
    assert seen[2] == seen[3]
    assert (await rig.context(agent))[0].text == seen[-1]
    assert not await is_stale(rig, agent)


async def test_a_change_after_the_last_question_is_in_the_first_one_of_the_next_turn(
    store: SqliteStore, make: Make
) -> None:
    rig = Rig(store)
    agent = await rig.make_agent()
    folder, _ = await add_folder(store, make)
    use_toolbox(rig)
    async with rig.run_worker():
        await rig.say(agent)
        await agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id)
        await rig.say(agent)
        await rig.say(agent)
    assert [status_in(text) for text in prompts(rig)] == [None, "open", "open"]


def answer_by_progress(question: Question) -> Answer:
    rows = [row for row in question.history if row.role is Role.TOOL]
    return text_answer() if rows else call_answer(("c1", "roll"))


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(4))
async def test_after_a_crash_at_any_write_the_model_gets_what_is_stored(
    store: SqliteStore, make: Make, at: int, after_commit: bool
) -> None:
    first, second = Rig(store), Rig(store)
    folder, file = await add_folder(store, make)
    agent = await first.make_agent("roll")
    use_toolbox(first)
    await agent_files.attach_folder(first.services, ACTOR, agent.id, folder.id)
    services = first.services
    # Done before the process dies, or by the tool of the next one.
    use_toolbox(first, lambda: agent_files.close_file(services, ACTOR, agent.id, file.id))
    use_toolbox(second, lambda: agent_files.close_file(services, ACTOR, agent.id, file.id))
    first.model.otherwise = second.model.otherwise = answer_by_progress
    dying = CrashingStore(store, at, after_commit=after_commit)
    run = await run_until_crash(first, agent, dying)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
        await assert_sound(second, agent, run)
    asked = [*prompts(first), *prompts(second)]
    states = await second.read(lambda tx: tx.agent_files.get(agent.id, file.id))
    assert status_in(asked[0]) == "open"
    assert status_in(asked[-1]) == ("open" if states.state.is_open else "closed")
    assert (await second.context(agent))[0].text == asked[-1]
    assert not await is_stale(second, agent)


@pytest.mark.parametrize("unknown_at", range(3))
async def test_a_checkpoint_that_was_committed_without_an_answer_keeps_its_system_message(
    store: SqliteStore, make: Make, unknown_at: int
) -> None:
    rig = Rig(store)
    folder, file = await add_folder(store, make)
    agent = await rig.make_agent("roll")
    use_toolbox(rig)
    await agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id)
    services = rig.services
    use_toolbox(rig, lambda: agent_files.close_file(services, ACTOR, agent.id, file.id))
    rig.model.script = [call_answer(("c1", "roll"))]
    run = await rig.submit(agent)
    rig.services = replace(rig.services, store=OutageStore(store, unknown_at=unknown_at))
    async with rig.run_worker():
        await rig.wait_for_end(run)
    assert [status_in(text) for text in prompts(rig)] == ["open", "closed"]
    assert (await rig.context(agent))[0].text == prompts(rig)[-1]


async def test_a_compaction_shows_the_files_and_the_next_question_what_changed_since(
    store: SqliteStore, make: Make
) -> None:
    rig = Rig(store)
    folder, _ = await add_folder(store, make)
    agent = await rig.make_agent(compaction_settings={"mode": "all"})
    use_toolbox(rig)
    async with rig.run_worker():
        for _ in range(2):
            await rig.say(agent)
        await agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id)
        await compact_thread(rig, agent)
        assert status_in((await rig.context(agent))[0].text) == "open"
        await agent_files.close_all(rig.services, ACTOR, agent.id)
        await rig.say(agent)
    assert status_in(prompts(rig)[-1]) == "closed"
    assert (await rig.context(agent))[0].text == prompts(rig)[-1]


async def test_a_new_limit_of_the_agent_is_shown_although_the_run_began_before(
    store: SqliteStore, make: Make
) -> None:
    rig = Rig(store)
    folder, _ = await add_folder(store, make)
    agent = await rig.make_agent("roll")
    use_toolbox(rig)
    await agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id)

    async def lower_limit() -> None:
        def work(tx: Transaction) -> None:
            stored = tx.agents.get(ACTOR.organization_id, agent.id)
            changed = structs.replace(stored, max_files_open=0)
            tx.agents.save(changed)
            agent_files.apply_limits(tx, changed)

        await store.write(work)

    use_toolbox(rig, lower_limit)
    rig.model.script = [call_answer(("c1", "roll"))]
    async with rig.run_worker():
        await rig.say(agent)
    assert [status_in(text) for text in prompts(rig)] == ["open", "closed"]
    assert "- max_files_open=0" in prompts(rig)[1]


async def test_agents_that_open_files_at_the_same_moment_never_have_too_many_open(
    any_store: SqlStore, make: Make
) -> None:
    rig = Rig(any_store)
    folder, _ = await add_folder(any_store, make)
    files = [await add_file(any_store, make, folder, "text") for _ in range(6)]
    agent = await rig.make_agent(max_files_open=2)
    use_toolbox(rig)
    await agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id)
    await asyncio.gather(
        *(agent_files.open_file(rig.services, ACTOR, agent.id, file.id) for file in files)
    )
    assert len(await rig.read(lambda tx: tx.agent_files.list_open(agent.id))) == 2


async def test_a_folder_that_is_attached_while_a_file_becomes_ready_has_the_file(
    any_store: SqlStore, make: Make
) -> None:
    rig = Rig(any_store)
    use_toolbox(rig)
    for number in range(5):
        folder, file = await add_folder(any_store, make, f"docs {number}", total_chunks=None)
        agent = await rig.make_agent()
        await asyncio.gather(
            make_ready(rig, file),
            agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id),
        )
        assert await read_file_ids(rig, agent) == [file.id]


async def make_ready(rig: Rig, file: File) -> None:
    """As the ingestion does it when the text is there."""
    ready = structs.replace(file, total_chunks=0)

    def work(tx: Transaction) -> None:
        tx.folders.lock(ready.organization_id, ready.folder_id)
        tx.files.save(ready)
        agent_files.open_in_agents(tx, rig.services, ready)

    await rig.services.store.write(work)


async def read_file_ids(rig: Rig, agent: Agent) -> list[str]:
    found = await rig.read(lambda tx: tx.agent_files.list_of_agents([agent.id]))
    return [item.file.id for item in found[agent.id]]
