"""Moments, waited for from coroutines and from threads."""

import asyncio
import threading

import pytest

from holdfast.testing import Moment


async def test_a_coroutine_is_woken_from_another_thread() -> None:
    moment = Moment("it")
    waiting = asyncio.create_task(moment.wait(5))
    await asyncio.sleep(0)
    thread = threading.Thread(target=moment.happen)
    thread.start()
    await waiting
    thread.join(5)
    assert moment.happened


def test_a_thread_is_woken_from_another_thread() -> None:
    moment = Moment("it")
    thread = threading.Thread(target=moment.happen)
    thread.start()
    moment.block(5)
    thread.join(5)
    assert moment.happened


async def test_what_has_happened_is_not_waited_for() -> None:
    moment = Moment("it")
    moment.happen()
    moment.happen()
    await moment.wait(0)
    moment.block(0)


async def test_a_moment_that_does_not_come_is_named() -> None:
    moment = Moment("the end of the world")
    with pytest.raises(TimeoutError, match=r"the end of the world did not happen within 0 s"):
        await moment.wait(0)
    with pytest.raises(TimeoutError, match=r"the end of the world did not happen within 0 s"):
        moment.block(0)


def test_a_waiter_whose_loop_has_ended_does_not_matter() -> None:
    moment = Moment("it")

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await moment.wait(0.001)

    asyncio.run(give_up())
    moment.happen()
    assert moment.happened
