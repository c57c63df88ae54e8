"""What every Dispatch does: one run per thread at a time, in order, and threads do not wait for each other."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from holdfast.adapters.dispatch.in_process import InProcessDispatch

from holdfast.adapters.bell.local import LocalBell
from holdfast.ports.dispatch import Dispatch, Ticket

T = TypeVar("T")

WAIT_SECONDS = 10

A1, A2, A3 = (Ticket(f"run-a{number}", "thread-a") for number in (1, 2, 3))
B1 = Ticket("run-b1", "thread-b")


@pytest.fixture
def dispatch() -> Dispatch:
    return InProcessDispatch(LocalBell())


async def take(dispatch: Dispatch) -> Ticket:
    return await asyncio.wait_for(dispatch.take(), WAIT_SECONDS)


async def start_waiting(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that waits already."""
    task = asyncio.create_task(coroutine)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_ticket_is_taken_once(dispatch: Dispatch) -> None:
    dispatch.submit(A1)
    assert await take(dispatch) == A1
    task = await start_waiting(dispatch.take())
    task.cancel()


async def test_take_may_be_called_before_submit(dispatch: Dispatch) -> None:
    task = await start_waiting(dispatch.take())
    dispatch.submit(A1)
    assert await asyncio.wait_for(task, WAIT_SECONDS) == A1


async def test_tickets_of_one_thread_are_taken_in_order_one_at_a_time(dispatch: Dispatch) -> None:
    for ticket in (A1, A2, A3):
        dispatch.submit(ticket)
    assert await take(dispatch) == A1
    task = await start_waiting(dispatch.take())
    dispatch.release(A1)
    assert await asyncio.wait_for(task, WAIT_SECONDS) == A2
    dispatch.release(A2)
    assert await take(dispatch) == A3


async def test_no_thread_waits_for_another(dispatch: Dispatch) -> None:
    for ticket in (A1, A2, B1):
        dispatch.submit(ticket)
    assert [await take(dispatch), await take(dispatch)] == [A1, B1]


async def test_a_thread_that_was_released_is_free(dispatch: Dispatch) -> None:
    dispatch.submit(A1)
    dispatch.release(await take(dispatch))
    dispatch.submit(A2)
    assert await take(dispatch) == A2


async def test_only_the_holder_can_release_its_thread(dispatch: Dispatch) -> None:
    for ticket in (A1, A2, A3):
        dispatch.submit(ticket)
    assert await take(dispatch) == A1
    dispatch.release(A3)
    task = await start_waiting(dispatch.take())
    dispatch.release(A1)
    assert await asyncio.wait_for(task, WAIT_SECONDS) == A2
    dispatch.release(A1)
    task = await start_waiting(dispatch.take())
    task.cancel()


async def test_a_run_waits_for_its_turn_until_the_thread_is_free(dispatch: Dispatch) -> None:
    dispatch.submit(A1)
    dispatch.submit(A2)
    await asyncio.wait_for(dispatch.wait_for_turn(A1.run_id), WAIT_SECONDS)
    turn = await start_waiting(dispatch.wait_for_turn(A2.run_id))
    dispatch.release(await take(dispatch))
    await asyncio.wait_for(turn, WAIT_SECONDS)


async def test_an_unknown_run_does_not_wait(dispatch: Dispatch) -> None:
    await asyncio.wait_for(dispatch.wait_for_turn("run-elsewhere"), WAIT_SECONDS)


async def test_a_withdrawn_ticket_is_never_taken(dispatch: Dispatch) -> None:
    for ticket in (A1, A2, A3):
        dispatch.submit(ticket)
    assert await take(dispatch) == A1
    assert dispatch.withdraw(A2.run_id) == A1.run_id
    dispatch.release(A1)
    assert await take(dispatch) == A3


async def test_a_ticket_whose_turn_has_come_is_not_withdrawn(dispatch: Dispatch) -> None:
    dispatch.submit(A1)
    assert dispatch.withdraw(A1.run_id) is None
    assert await take(dispatch) == A1
    assert dispatch.withdraw("run-elsewhere") is None


async def test_a_thread_whose_waiting_runs_were_all_withdrawn_is_free_again(
    dispatch: Dispatch,
) -> None:
    dispatch.submit(A1)
    dispatch.submit(A2)
    dispatch.withdraw(A2.run_id)
    dispatch.release(await take(dispatch))
    dispatch.submit(A3)
    assert await take(dispatch) == A3


async def test_a_cancelled_take_loses_no_ticket(dispatch: Dispatch) -> None:
    task = await start_waiting(dispatch.take())
    dispatch.submit(A1)
    task.cancel()
    await asyncio.wait([task], timeout=WAIT_SECONDS)
    assert await take(dispatch) == A1


async def test_a_run_holds_its_thread_from_its_turn_to_its_release(dispatch: Dispatch) -> None:
    dispatch.submit(A1)
    dispatch.submit(A2)
    assert (dispatch.run_holds_thread(A1.run_id), dispatch.run_holds_thread(A2.run_id)) == (
        True,
        False,
    )
    dispatch.release(await take(dispatch))
    assert (dispatch.run_holds_thread(A1.run_id), dispatch.run_holds_thread(A2.run_id)) == (
        False,
        True,
    )
