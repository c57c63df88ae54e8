"""The limits of grep_files: of time, of one file, of all files."""

import asyncio
from typing import Any

import pytest
from msgspec import structs
from tests.support.rig import ACTOR, Rig
from tests.support.values import Make, add_file

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.toolbox import file_tools
from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.adapters.toolbox.specs import ToolServices
from holdfast.core.agents import Agent
from holdfast.core.files import File, split_into_parts
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import agent_files, tools

WAIT_SECONDS = 20


class JumpingClock(SystemClock):
    """Each look at it is 10 seconds later."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def monotonic_ns(self) -> int:
        self._looks += 1
        return self._looks * 10_000_000_000


async def make_reader(rig: Rig, make: Make, *texts: str) -> Agent:
    """An agent with a folder that has these files."""
    rig.toolbox._builtin = [item.spec for item in BUILTIN.values()]
    await tools.add_builtin(rig.services, ACTOR)
    folder, store = make.folder(name="f"), rig.services.store
    await store.write(lambda tx: tx.folders.add(folder))
    for number, text in enumerate(texts):
        await add_file(store, make, folder, text, name=f"{number}.txt")
    agent = await rig.make_agent()
    await agent_files.attach_folder(rig.services, ACTOR, agent.id, folder.id)
    return agent


async def grep(rig: Rig, agent: Agent, **arguments: Any) -> str:
    unused: Any = None
    given = ToolServices(
        services=rig.services,
        sandbox=unused,
        timeout_seconds=WAIT_SECONDS,
        search=unused,
        pages=unused,
    )
    context = ToolContext(
        agent_id=agent.id, organization_id=agent.organization_id, thread_id=agent.id
    )
    run = BUILTIN["grep_files"].run(given, context, arguments)
    return await asyncio.wait_for(run, WAIT_SECONDS)


async def test_a_search_that_takes_too_long_is_stopped_and_says_so(
    store: SqliteStore, make: Make
) -> None:
    rig = Rig(store, clock=JumpingClock())
    agent = await make_reader(rig, make, *["needle\n"] * 9)
    text = await grep(rig, agent, pattern="needle")
    assert "was stopped before all files were read." in text
    assert "across 9 files" not in text


async def test_files_that_are_too_large_are_skipped(
    store: SqliteStore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(store)
    agent = await make_reader(rig, make, "needle" * 20, "needle", "needle", "needle")
    monkeypatch.setattr(file_tools, "MAX_FILE_CHARS", 100)
    text = await grep(rig, agent, pattern="needle")
    assert text.startswith("Found 3 total matches across 3 files")
    assert "Note: Skipped 1 files due to size limits" in text
    monkeypatch.setattr(file_tools, "MAX_TOTAL_CHARS", 12)
    text = await grep(rig, agent, pattern="needle")
    assert text.startswith("Found 2 total matches across 2 files")
    assert "Note: Skipped 2 files due to size limits" in text
    text = await grep(rig, agent, pattern="unknown")
    assert text == "No matches found for pattern: 'unknown' (searched 2 files, skipped 2)"


async def test_a_text_of_many_parts_is_searched_with_real_line_numbers(
    store: SqliteStore, make: Make
) -> None:
    rig = Rig(store)
    lines = [f"line {number}" if number % 3 else "x" * 50 for number in range(1, 400)]
    text = "\n".join(lines)
    agent = await make_reader(rig, make, text)

    def split(tx: Transaction) -> None:
        (file,) = _files(tx, agent)
        content = tx.contents.get(file.content_id)
        tx.contents.delete_text(content.id, 10)
        parts = list(split_into_parts(text, 40))
        tx.contents.add_text(content.id, parts)
        tx.contents.save(structs.replace(content, text_parts=len(parts)))

    await store.write(split)
    found = await grep(rig, agent, pattern="^line 39[0-9]$", context_lines=1)
    assert found.startswith("Found 6 total matches across 1 files")
    assert f"=== f/0.txt:391 ===\n  390: {'x' * 50}\n> 391: line 391\n  392: line 392\n" in found
    assert "Found 133 total" in await grep(rig, agent, pattern="^x{50}$")


def _files(tx: Transaction, agent: Agent) -> list[File]:
    return [item.file for item in tx.agent_files.list_of_agents([agent.id])[agent.id]]
