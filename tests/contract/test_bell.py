"""What every Bell does: it wakes tasks, remembers one ring for the next wait, and carries no data."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.bells import CONSTANT_TOPICS, connect_postgres_bell, start_waiting
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.bell.local import LocalBell
from holdfast.ports.bell import Bell, run_topic

ADAPTERS = ["local", pytest.param("postgresql", marks=pytest.mark.slow)]
# Nothing rings within it.
SHORT_SECONDS = 0.01


@pytest.fixture(params=ADAPTERS)
async def bell(request: pytest.FixtureRequest) -> AsyncIterator[LocalBell]:
    if request.param == "local":
        yield LocalBell()
    else:
        url: str = request.getfixturevalue("postgres_url")
        async with connect_postgres_bell(url) as connected:
            yield connected


async def expect_ring(bell: Bell, topic: str) -> None:
    await asyncio.wait_for(bell.wait(topic), WAIT_SECONDS)


async def test_a_ring_wakes_a_waiting_task(bell: Bell) -> None:
    task = await start_waiting(bell, "runs")
    bell.ring("runs")
    await asyncio.wait_for(task, WAIT_SECONDS)


async def test_a_ring_wakes_all_waiting_tasks(bell: Bell) -> None:
    tasks = [await start_waiting(bell, "runs") for _ in range(3)]
    bell.ring("runs")
    await asyncio.wait_for(asyncio.gather(*tasks), WAIT_SECONDS)


async def test_a_ring_for_this_server_wakes_a_waiting_task(bell: Bell) -> None:
    task = await start_waiting(bell, "runs")
    bell.ring("runs", here_only=True)
    await asyncio.wait_for(task, WAIT_SECONDS)


@pytest.mark.parametrize("topic", CONSTANT_TOPICS)
async def test_rings_without_a_waiting_task_count_once_for_the_next(bell: Bell, topic: str) -> None:
    bell.ring(topic)
    bell.ring(topic)
    await expect_ring(bell, topic)
    task = await start_waiting(bell, topic)
    bell.ring(topic)
    await asyncio.wait_for(task, WAIT_SECONDS)


async def test_topics_do_not_wake_each_other(bell: Bell) -> None:
    task = await start_waiting(bell, "runs")
    bell.ring("cancels")
    other = await start_waiting(bell, "other")
    assert not task.done()
    await expect_ring(bell, "cancels")
    bell.ring("runs")
    bell.ring("other")
    await asyncio.wait_for(asyncio.gather(task, other), WAIT_SECONDS)


async def test_a_ring_is_not_lost_when_a_waiting_task_is_cancelled(bell: Bell) -> None:
    task = await start_waiting(bell, "runs")
    bell.ring("runs")
    task.cancel()
    await asyncio.wait([task], timeout=WAIT_SECONDS)
    await expect_ring(bell, "runs")


async def test_a_ring_between_the_start_of_a_watch_and_its_wait_is_not_lost(bell: Bell) -> None:
    topic = run_topic("run-1")
    with bell.watch(topic) as watch:
        bell.ring(topic)
        async with asyncio.timeout(WAIT_SECONDS):
            await watch.wait(10 * WAIT_SECONDS)


async def test_a_ring_wakes_all_watches_of_its_topic_and_no_other(bell: Bell) -> None:
    mine, other = run_topic("run-1"), run_topic("run-2")
    with bell.watch(mine) as first, bell.watch(mine) as second, bell.watch(other) as third:
        waits = [asyncio.create_task(watch.wait(10 * WAIT_SECONDS)) for watch in (first, second)]
        silent = asyncio.create_task(third.wait(10 * WAIT_SECONDS))
        bell.ring(mine)
        await asyncio.wait_for(asyncio.gather(*waits), WAIT_SECONDS)
        assert not silent.done()
        bell.ring(other)
        await asyncio.wait_for(silent, WAIT_SECONDS)


async def test_rings_before_a_watch_and_rings_that_it_has_noticed_do_not_count(bell: Bell) -> None:
    topic = run_topic("run-1")
    bell.ring(topic)
    with bell.watch(topic) as watch:
        before = asyncio.create_task(watch.wait(10 * WAIT_SECONDS))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not before.done()
        bell.ring(topic)
        bell.ring(topic)
        await asyncio.wait_for(before, WAIT_SECONDS)
        after = asyncio.create_task(watch.wait(10 * WAIT_SECONDS))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not after.done()
        bell.ring(topic)
        await asyncio.wait_for(after, WAIT_SECONDS)


async def test_a_watch_without_a_ring_ends_its_wait_after_the_given_time(bell: Bell) -> None:
    with bell.watch(run_topic("run-1")) as watch:
        async with asyncio.timeout(WAIT_SECONDS):
            await watch.wait(SHORT_SECONDS)
            await watch.wait(0)


async def test_a_topic_can_be_waited_for_and_watched(bell: Bell) -> None:
    with bell.watch("runs") as watch:
        bell.ring("runs")
        async with asyncio.timeout(WAIT_SECONDS):
            await watch.wait(10 * WAIT_SECONDS)
            await bell.wait("runs")


async def test_runs_that_come_and_go_leave_nothing_behind(bell: LocalBell) -> None:
    for number in range(100):
        topic = run_topic(f"run-{number}")
        bell.ring(topic)
        with bell.watch(topic), bell.watch(topic):
            bell.ring(topic)
        bell.ring(topic)
    assert bell._watches == {}
    assert set(bell._events) == set(CONSTANT_TOPICS)


async def test_a_bell_is_connected_until_something_is_wrong(bell: Bell) -> None:
    assert bell.is_connected
