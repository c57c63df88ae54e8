"""What every Bell does: it wakes waiters, keeps one ring for the next waiter, and carries no data."""

import asyncio

import pytest

from holdfast.adapters.bell.local import LocalBell
from holdfast.ports.bell import Bell

WAIT_SECONDS = 10


@pytest.fixture
def bell() -> Bell:
    return LocalBell()


async def expect_ring(bell: Bell, topic: str) -> None:
    await asyncio.wait_for(bell.wait(topic), WAIT_SECONDS)


async def start_waiting(bell: Bell, topic: str) -> asyncio.Task[None]:
    """A task that waits already."""
    task = asyncio.create_task(bell.wait(topic))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_ring_wakes_a_waiting_task(bell: Bell) -> None:
    task = await start_waiting(bell, "runs")
    bell.ring("runs")
    await asyncio.wait_for(task, WAIT_SECONDS)


async def test_a_ring_wakes_all_waiting_tasks(bell: Bell) -> None:
    tasks = [await start_waiting(bell, "runs") for _ in range(3)]
    bell.ring("runs")
    await asyncio.wait_for(asyncio.gather(*tasks), WAIT_SECONDS)


async def test_rings_without_a_waiting_task_count_once_for_the_next(bell: Bell) -> None:
    bell.ring("runs")
    bell.ring("runs")
    await expect_ring(bell, "runs")
    task = await start_waiting(bell, "runs")
    bell.ring("runs")
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
