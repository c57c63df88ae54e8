"""Requests that come at once begin one after the other; probes do not wait for them."""

import asyncio

from starlette.types import Receive, Scope, Send
from tests.support.waiting import WAIT_SECONDS

from holdfast.http.request_pace import RequestPace

MANY = 200


async def begin(pace: RequestPace, path: str) -> None:
    await pace({"type": "http", "path": path}, None, None)  # type: ignore[arg-type] # the application below calls neither


async def test_a_probe_overtakes_requests_that_have_not_begun() -> None:
    begun: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])

    pace = RequestPace(app, frozenset({"/v1/health"}))
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in range(MANY):
            group.create_task(begin(pace, f"/v1/agents/{number}"))
        group.create_task(begin(pace, "/v1/health/"))

    # All in their order, but the probe was among the first.
    assert begun.index("/v1/health/") < 20
    begun.remove("/v1/health/")
    assert begun == [f"/v1/agents/{number}" for number in range(MANY)]


async def test_a_client_that_leaves_while_it_waits_takes_nobodys_turn() -> None:
    begun: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])

    pace = RequestPace(app, frozenset())
    tasks = [asyncio.create_task(begin(pace, str(number))) for number in range(MANY)]
    await asyncio.sleep(0)
    for task in tasks[50:150]:
        task.cancel()
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*tasks, return_exceptions=True)
    later = asyncio.create_task(begin(pace, "later"))
    async with asyncio.timeout(WAIT_SECONDS):
        await later

    assert begun[-1] == "later"
    assert {"0", "199"} <= set(begun)
    assert "149" not in begun
