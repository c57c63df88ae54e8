"""A provider that fails for a moment is asked again, and who waits need not know (wire-v1 §5.8)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.http_site import WAIT_SECONDS, WIRES, Site, as_json, as_stream, open_site

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.testing import Answer, HangUp, HttpError, MalformedSse, ResetConnection, Scripted
from holdfast.testing.clock import FakeClock

FAULTS: dict[str, tuple[Scripted, str]] = {
    "429": (HttpError(429, "TEST", headers={"retry-after": "9"}), "llm_rate_limit"),
    "500": (HttpError(500, "TEST"), "llm_error"),
    "503": (HttpError(503, "TEST"), "llm_error"),
    "504": (HttpError(504, "TEST"), "llm_timeout"),
    "malformed": (MalformedSse("{TEST"), "llm_error"),
    "reset": (ResetConnection(), "llm_error"),
    "cut off": (Answer("One ", HangUp()), "llm_error"),
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def site(store: SqliteStore, clock: FakeClock) -> AsyncIterator[Site]:
    async with open_site(store, attempts=3, clock=clock) as site:
        yield site


@pytest.mark.parametrize(("fault", "error_type"), FAULTS.values(), ids=FAULTS.keys())
async def test_what_is_over_in_a_moment_is_not_noticed(
    site: Site, clock: FakeClock, fault: Scripted, error_type: str
) -> None:
    agent_id = await site.create_agent(WIRES["chat"])
    site.provider.script(fault, "Here I am.")
    sending = asyncio.create_task(as_json(site, agent_id))
    wait = await clock.wait_for_sleep()

    # While it is waited, the run is running and says what for.
    (run,) = await site.runs(agent_id)
    assert run["status"] == "running"
    (step,) = await site.get(f"/v1/runs/{run['id']}/steps")
    (attempt,) = step["attempts"]
    assert (step["status"], step["error_type"]) == ("pending", None)
    assert (attempt["number"], attempt["error_type"]) == (1, error_type)
    assert attempt["wait_seconds"] == wait
    assert attempt["detail"]

    clock.advance(wait)
    report = await asyncio.wait_for(sending, WAIT_SECONDS)
    assert report.status == 200
    assert await site.list_texts(agent_id) == ["Hello?", "Here I am."]
    (step,) = await site.get(f"/v1/runs/{run['id']}/steps")
    assert (step["status"], step["attempts"]) == ("success", [attempt])
    assert len(site.provider.requests) == 2


async def test_every_wire_is_asked_again(site: Site, clock: FakeClock, model: str) -> None:
    agent_id = await site.create_agent(model)
    site.provider.script(HttpError(529, "TEST: full"), "Here I am.")
    sending = asyncio.create_task(as_stream(site, agent_id))
    clock.advance(await clock.wait_for_sleep())
    report = await asyncio.wait_for(sending, WAIT_SECONDS)
    assert [item["message_type"] for item in report.stream][-2:] == [
        "stop_reason",
        "usage_statistics",
    ]
    assert await site.list_texts(agent_id) == ["Hello?", "Here I am."]


async def test_a_provider_that_does_not_recover_is_asked_so_often_and_no_more(
    site: Site, clock: FakeClock
) -> None:
    agent_id = await site.create_agent(WIRES["chat"])
    site.provider.respond_with(lambda _: HttpError(503, "TEST: full"))
    sending = asyncio.create_task(as_json(site, agent_id))
    for number in (1, 2):
        clock.advance(await clock.wait_for_sleep(number))
    report = await asyncio.wait_for(sending, WAIT_SECONDS)
    assert report.status == 503
    assert len(site.provider.requests) == 3
    (step,) = await site.get(f"/v1/runs/{report.run_id}/steps")
    assert [item["number"] for item in step["attempts"]] == [1, 2, 3]
    assert step["attempts"][-1]["wait_seconds"] is None
