"""Requests that come at once begin one after the other; probes do not wait for them."""

import asyncio
from functools import partial

from tests.support.waiting import WAIT_SECONDS

from holdfast.http.request_pace import REQUESTS_PER_TURN, RequestPace

MANY = 200


async def test_a_probe_overtakes_requests_that_have_not_begun() -> None:
    begun: list[int] = []
    all_begun = asyncio.Event()
    pace = RequestPace(frozenset({"/v1/health"}))
    for number in range(MANY):
        pace.begin("/v1/agents/", partial(begun.append, number))

    assert len(begun) == REQUESTS_PER_TURN
    pace.begin("/v1/health/", partial(begun.append, -1))
    assert begun.pop() == -1

    pace.begin("/v1/agents/", all_begun.set)
    async with asyncio.timeout(WAIT_SECONDS):
        await all_begun.wait()
    assert begun == list(range(MANY))


async def test_a_request_that_comes_alone_begins_at_once() -> None:
    pace = RequestPace(frozenset())
    for _ in range(MANY):
        begun = asyncio.Event()
        next_turn = asyncio.get_running_loop().create_future()
        pace.begin("/v1/agents/", begun.set)
        assert begun.is_set()
        asyncio.get_running_loop().call_soon(next_turn.set_result, None)
        await next_turn
