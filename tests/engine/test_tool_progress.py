"""How far tools are: shown while they run, never after, at most so often, and never at the cost of the call."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from tests.doubles.mcp import McpCall
from tests.doubles.store import OutageStore
from tests.support.engine_runs import facts_of, wait_until_set
from tests.support.mcp_rig import McpRig, call_with, remote_tool
from tests.support.rig import ACTOR, WAIT_SECONDS
from tests.support.servers import make_server

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.agents import Agent
from holdfast.core.events import Event, MessageStored, ToolProgressed
from holdfast.core.messages import Outcome, Role, Text
from holdfast.core.runs import Run, RunStatus
from holdfast.engine import tool_progress
from holdfast.engine.tool_progress import ProgressReports, VersionCheck
from holdfast.ports.mcp import RemoteResult, ToolProgress
from holdfast.usecases import runs

COUNT = remote_tool("count")


@pytest.fixture
def rig(store: SqliteStore) -> McpRig:
    return McpRig(store)


@pytest.fixture
async def agent(rig: McpRig) -> Agent:
    return await rig.make_mcp_agent(COUNT)


def report(call: McpCall, *steps: float, total: float | None = None, message: str = "") -> None:
    assert call.on_progress is not None
    for step in steps:
        call.on_progress(ToolProgress(step, total, message or None))


async def start_call(rig: McpRig, agent: Agent, **request: Any) -> tuple[Run, McpCall]:
    """A run whose only call waits until the gate of the server opens."""
    rig.model.script = [call_with(("c1", "count", {}))]
    rig.hold_calls()
    run = await rig.submit(agent, **request)
    await wait_until_set(rig.mcp.asked)
    return run, rig.mcp.calls[-1]


async def wait_for_progress(rig: McpRig, run: Run, count: int = 1) -> list[ToolProgressed]:
    """What a reader is shown until there are so many."""
    found: list[ToolProgressed] = []
    async with (
        asyncio.timeout(WAIT_SECONDS),
        aclosing(rig.services.events.follow(run.id)) as batches,
    ):
        async for events in batches:
            found += progress_in([event.fact for event in events])
            if len(found) >= count:
                break
    return found


def progress_in(facts: Sequence[object]) -> list[ToolProgressed]:
    return [fact for fact in facts if isinstance(fact, ToolProgressed)]


def index_of_results(facts: Sequence[object]) -> int:
    return next(
        number
        for number, fact in enumerate(facts)
        if isinstance(fact, MessageStored) and fact.message.role is Role.TOOL
    )


@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_progress_is_shown_while_the_call_runs_and_again_later(
    rig: McpRig, agent: Agent, stream_tokens: bool
) -> None:
    async with rig.run_worker():
        run, call = await start_call(rig, agent, stream_tokens=stream_tokens)
        report(call, 1, total=3, message="one of three")
        (shown,) = await wait_for_progress(rig, run)
        assert (shown.call_id, shown.name) == ("c1", "count")
        assert (shown.progress, shown.total, shown.message) == (1, 3, "one of three")
        rig.mcp.gate.set()
        ended = await rig.wait_for_end(run)
    assert ended.status is RunStatus.COMPLETED
    # From the store this time.
    assert progress_in(await facts_of(rig, run)) == [shown]


async def test_the_last_progress_comes_before_the_result(rig: McpRig, agent: Agent) -> None:
    def answer(call: McpCall) -> RemoteResult:
        report(call, *range(1, 101), total=100)
        return RemoteResult((Text("counted"),))

    rig.mcp.answer = answer
    rig.model.script = [call_with(("c1", "count", {}))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await rig.wait_for_end(run)
    facts = await facts_of(rig, run)
    shown = progress_in(facts)
    # They came at once, so only the newest is worth a line.
    assert [item.progress for item in shown] == [100]
    assert facts.index(shown[-1]) < index_of_results(facts)


async def test_what_comes_after_the_result_is_not_shown(rig: McpRig, agent: Agent) -> None:
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        rig.mcp.gate.set()
        await rig.wait_for_end(run)
        report(call, 1)
        assert progress_in(await facts_of(rig, run)) == []
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tool-progress"]


async def test_numbers_of_events_stay_in_order(rig: McpRig, agent: Agent) -> None:
    async with rig.run_worker():
        run, call = await start_call(rig, agent, stream_tokens=True)
        report(call, 1)
        await wait_for_progress(rig, run)
        report(call, 2)
        await wait_for_progress(rig, run, 2)
        rig.mcp.gate.set()
        await rig.wait_for_end(run)
    stored = await rig.read(lambda tx: tx.events.list_after(run.id, 0, 1_000))
    numbers = [event.seq for event in stored]
    assert numbers == sorted(set(numbers))
    assert [item.progress for item in progress_in(facts(stored))] == [1, 2]


def facts(events: Sequence[Event]) -> list[object]:
    return [event.fact for event in events]


async def test_calls_that_run_side_by_side_are_told_apart(rig: McpRig) -> None:
    agent = await rig.make_mcp_agent(remote_tool("fast_one"), remote_tool("fast_two"))

    def answer(call: McpCall) -> RemoteResult:
        report(call, 1 if call.tool == "fast_one" else 2)
        return RemoteResult((Text(call.tool),))

    rig.mcp.answer = answer
    rig.model.script = [call_with(("c1", "fast_one", {}), ("c2", "fast_two", {}))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await rig.wait_for_end(run)
    shown = progress_in(await facts_of(rig, run))
    assert {item.call_id: item.progress for item in shown} == {"c1": 1, "c2": 2}


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (ToolProgress(1, message="x" * 10_000), "x" * tool_progress.MAX_MESSAGE_CHARS),
        (ToolProgress(1, message="a\ud800b\0c"), "a?b\0c"),
    ],
)
async def test_a_message_is_bounded_and_can_be_stored(
    rig: McpRig, agent: Agent, progress: ToolProgress, expected: str
) -> None:
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        assert call.on_progress is not None
        call.on_progress(progress)
        (shown,) = await wait_for_progress(rig, run)
        rig.mcp.gate.set()
        await rig.wait_for_end(run)
    assert shown.message == expected
    assert progress_in(await facts_of(rig, run)) == [shown]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_numbers_that_json_does_not_have_are_not_shown(
    rig: McpRig, agent: Agent, number: float
) -> None:
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        report(call, number)
        report(call, 1, total=number)
        report(call, 2)
        (shown,) = await wait_for_progress(rig, run)
        rig.mcp.gate.set()
        await rig.wait_for_end(run)
    assert shown.progress == 2


async def test_a_store_that_fails_loses_progress_and_not_the_call(
    rig: McpRig, store: SqliteStore, agent: Agent
) -> None:
    outage = OutageStore(store)
    rig.services = replace(rig.services, store=outage)
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        outage.is_out = True
        report(call, 1)
        await wait_until_set(outage.failed)
        outage.is_out = False
        report(call, 2)
        shown = await wait_for_progress(rig, run)
        rig.mcp.gate.set()
        ended = await rig.wait_for_end(run)
    assert (ended.status, ended.progress.recoveries) == (RunStatus.COMPLETED, 0)
    assert [item.progress for item in shown] == [2]
    assert (await rig.returns(agent))["c1"].outcome is Outcome.FINISHED
    stored = await rig.read(lambda tx: tx.events.list_after(run.id, 0, 1_000))
    numbers = [event.seq for event in stored]
    assert numbers == sorted(set(numbers))


async def test_a_commit_that_is_reported_as_failed_costs_no_more(
    rig: McpRig, store: SqliteStore, agent: Agent
) -> None:
    # The writes before: the send, the claim, the answer with its call.
    outage = OutageStore(store, unknown_at=3)
    rig.services = replace(rig.services, store=outage)
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        report(call, 1)
        await wait_until_set(outage.failed)
        rig.mcp.gate.set()
        ended = await rig.wait_for_end(run)
    assert (ended.status, ended.progress.recoveries) == (RunStatus.COMPLETED, 0)
    stored = await rig.read(lambda tx: tx.events.list_after(run.id, 0, 1_000))
    numbers = [event.seq for event in stored]
    assert numbers == sorted(set(numbers))


async def test_a_cancel_ends_the_reports_too(rig: McpRig, agent: Agent) -> None:
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        report(call, 1)
        await wait_for_progress(rig, run)
        report(call, 2)
        await asyncio.wait_for(runs.cancel(rig.services, ACTOR, run.id), WAIT_SECONDS)
        report(call, 3)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tool-progress"]
    told = await facts_of(rig, run)
    assert 3 not in [item.progress for item in progress_in(told)]


async def test_servers_of_another_version_are_not_given_what_they_cannot_read(
    rig: McpRig, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    ask = VersionCheck.is_alone

    async def is_alone(self: VersionCheck) -> bool:
        answer = await ask(self)
        asked.set()
        return answer

    monkeypatch.setattr(VersionCheck, "is_alone", is_alone)
    async with rig.run_worker():
        run, call = await start_call(rig, agent)
        await rig.services.store.write(
            lambda tx: tx.servers.register(make_server(version="an older one"), 60)
        )
        report(call, 1)
        await wait_until_set(asked)
        rig.mcp.gate.set()
        ended = await rig.wait_for_end(run)
    assert ended.status is RunStatus.COMPLETED
    assert progress_in(await facts_of(rig, run)) == []


async def test_who_is_alive_is_asked_once_a_minute(rig: McpRig) -> None:
    reads = 0
    read = rig.services.store.read

    async def count_reads(work: Callable[..., Any]) -> Any:
        nonlocal reads
        reads += 1
        return await read(work)

    check = VersionCheck(rig.services, "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig.services.store, "read", count_reads)
        assert [await check.is_alone() for _ in range(3)] == [True] * 3
    assert reads == 1


async def test_a_turn_whose_tools_say_nothing_writes_nothing_more(
    rig: McpRig, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Nothing was said.")

    monkeypatch.setattr(ProgressReports, "_write", refuse)
    monkeypatch.setattr(ProgressReports, "close", refuse)
    rig.model.script = [call_with(("c1", "count", {}))]
    async with rig.run_worker():
        assert (await rig.wait_for_end(await rig.submit(agent))).status is RunStatus.COMPLETED
