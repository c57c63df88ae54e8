"""A message that was stored runs once, whatever its sender is told and however often its client sends it again."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import LiteralString

import psycopg
import pytest
from letta_client import APIStatusError
from sqlalchemy import Connection
from tests.doubles.model import call_answer
from tests.doubles.unreliable_store import with_faults
from tests.support.rig import WAIT_SECONDS
from tests.support.unreliable_site import (
    ALL_SENDS,
    WAITING_SENDS,
    Send,
    Site,
    hold_thread,
    open_unreliable_site,
    send_direct_json,
    send_json,
)
from tests.support.waiting import eventually

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.postgres import PostgresStore
from holdfast.core import tool_rules as rules
from holdfast.errors import StoreUnavailable
from holdfast.http.letta_v1 import sends
from holdfast.usecases import messages


@pytest.mark.parametrize("busy_wait_seconds", [0.05])
@pytest.mark.parametrize("send", WAITING_SENDS)
async def test_a_stored_message_is_not_sent_again_when_the_store_fails(
    site: Site, send: Send
) -> None:
    agent = await site.rig.make_agent()
    first = await hold_thread(site, agent)
    site.store.failures_after_commit = 1
    with with_faults(), pytest.raises(APIStatusError) as refused:
        await asyncio.wait_for(send(site, agent), WAIT_SECONDS)
    response = refused.value.response
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    run_id = response.json()["run_id"]
    assert f"/v1/runs/{run_id}/stream" in response.json()["detail"]
    site.rig.model.gate.set()
    await first
    assert len(site.requests) == 2
    runs = await site.runs(agent)
    assert len(runs) == 2
    assert run_id in {run["id"] for run in runs}


@pytest.mark.parametrize("busy_wait_seconds", [0.05])
async def test_a_sender_is_not_told_that_a_message_is_stored_that_may_have_been_withdrawn(
    site: Site,
) -> None:
    agent = await site.rig.make_agent()
    first = await hold_thread(site, agent)
    site.store.loses_second_answer = True
    with with_faults(), pytest.raises(APIStatusError) as refused:
        await asyncio.wait_for(send_json(site, agent), WAIT_SECONDS)
    response = refused.value.response
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    assert "If there is no such run" in response.json()["detail"]
    assert "is stored" not in response.json()["detail"]
    assert (await site.http.get(f"/v1/runs/{response.json()['run_id']}")).status_code == 404
    site.rig.model.gate.set()
    await first


@pytest.mark.parametrize("send", [send_json, send_direct_json])
async def test_a_stored_message_is_not_sent_again_when_its_answer_has_a_bug(
    site: Site, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise LookupError("on purpose")

    agent = await site.rig.make_agent()
    monkeypatch.setattr(sends, "letta_response", fail)
    with pytest.raises(APIStatusError) as refused:
        await send(site, agent)
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert "on purpose" not in refused.value.response.text
    runs = await site.runs(agent)
    assert [run["id"] for run in runs] == [refused.value.response.json()["run_id"]]


@pytest.mark.parametrize("path", ["agents/{}/messages", "conversations/default/messages"])
async def test_a_message_that_comes_after_a_pause_is_refused_with_its_run_and_not_sent_again(
    site: Site, path: str
) -> None:
    """It is stored when its turn comes, and by then its thread waits for an approval."""
    agent = await site.rig.make_agent("ask", rules=(rules.RequiresApproval(tool_name="ask"),))
    site.rig.model.script = [call_answer(("call-1", "ask"))]
    first = await hold_thread(site, agent)
    body = {"input": "Hi", "agent_id": agent.id, "streaming": False}
    second = asyncio.create_task(site.http.post("/v1/" + path.format(agent.id), json=body))
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await site.runs(agent)) < 2:
            pass
        site.rig.model.gate.set()
        refused, _ = await asyncio.gather(second, first)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")
    assert refused.json()["run_id"] == (await site.runs(agent))[0]["id"]


@pytest.mark.parametrize("lost", ["lost_answers", "lost_commits"])
@pytest.mark.parametrize("send", ALL_SENDS)
async def test_a_message_is_stored_once_when_the_answer_to_the_commit_is_lost(
    site: Site, send: Send, lost: str
) -> None:
    agent = await site.rig.make_agent()
    setattr(site.store, lost, 1)
    with with_faults():
        await asyncio.wait_for(send(site, agent), WAIT_SECONDS)
    (run,) = await site.runs(agent)
    assert (await site.wait_for_end(run["id"])).stop_reason == "end_turn"
    assert len(site.requests) == 1


async def test_a_message_whose_fate_is_unknown_for_too_long_is_not_sent_again_and_runs_if_it_was_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "OUTCOME_CHECK_SECONDS", 0)
    agent = await site.rig.make_agent()
    site.store.lost_answers, site.store.failures_after_commit = 1, 1
    with with_faults(), pytest.raises(APIStatusError) as refused:
        await send_json(site, agent)
    response = refused.value.response
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    ended = await site.wait_for_end(response.json()["run_id"])
    assert ended.stop_reason == "end_turn"
    assert len(site.requests) == len(await site.runs(agent)) == 1


class LateCommit:
    """The commit that stores the next run is reported as lost while PostgreSQL is still busy with it: it happens when it is
    released. Others, such as those of the worker, are as always."""

    def __init__(self, store: PostgresStore, url: str) -> None:
        self._store = store
        self._url = url
        self._runs = self._query("SELECT count(*) FROM runs")
        self._held: Connection | None = None
        store._use_writer = self._lend

    @contextmanager
    def _lend(self) -> Iterator[Connection]:
        connection = self._store._writer.connect()
        connection.commit = partial(self._commit, connection)  # type: ignore[method-assign]  # a fault that no port can make
        try:
            yield connection
        finally:
            if connection is not self._held:
                connection.close()

    def _commit(self, connection: Connection) -> None:
        runs = connection.exec_driver_sql("SELECT count(*) FROM runs").scalar_one()
        if self._held is None and runs > self._runs:
            self._held = connection
            raise StoreUnavailable("TEST: the connection was lost")
        Connection.commit(connection)

    async def release_once_awaited(self) -> None:
        """Commit when another transaction waits for it."""
        await eventually(self._is_awaited)
        assert self._held is not None
        await asyncio.to_thread(Connection.commit, self._held)
        self._held.close()

    def _is_awaited(self) -> bool:
        return (
            self._query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0
        )

    def _query(self, query: LiteralString) -> int:
        with psycopg.connect(self._url) as connection:
            (found,) = connection.execute(query).fetchone() or (0,)
        return int(found)


@pytest.mark.slow
@pytest.mark.parametrize("is_answer", [False, True])
async def test_a_message_runs_once_whose_commit_goes_on_while_it_is_stored_again(
    blank_postgres_url: str, cipher: Cipher, is_answer: bool
) -> None:
    # PostgreSQL must not give the held transaction up while this machine is busy.
    store = await PostgresStore.open(blank_postgres_url, cipher=cipher, idle_seconds=WAIT_SECONDS)
    async with open_unreliable_site(store, busy_wait_seconds=30.0) as site:
        agent = await site.rig.make_agent("ask", rules=(rules.RequiresApproval(tool_name="ask"),))
        body: dict[str, object] = {"input": "Hi"}
        if is_answer:
            site.rig.model.script = [call_answer(("call-1", "ask"))]
            await site.rig.say(agent)
            entry = {"type": "approval", "tool_call_id": "call-1", "approve": True}
            body = {"messages": [{"type": "approval", "approvals": [entry]}]}
        late = LateCommit(store, blank_postgres_url)
        sending = asyncio.create_task(
            site.http.post(f"/v1/agents/{agent.id}/messages", json=body, timeout=WAIT_SECONDS)
        )
        await late.release_once_awaited()
        answer = await asyncio.wait_for(sending, WAIT_SECONDS)
        assert answer.status_code == 200, answer.text
        assert len(await site.runs(agent)) == 1 + is_answer
    await store.close()


async def test_no_request_whose_outcome_is_unknown_is_sent_again(site: Site) -> None:
    site.store.lost_answers = 1
    with with_faults(), pytest.raises(APIStatusError) as failed:
        await site.letta.blocks.create(label="notes", value="")
    response = failed.value.response
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    assert len(site.requests) == 1
    assert len((await site.http.get("/v1/blocks/")).json()) == 1


async def test_a_message_that_was_certainly_not_stored_is_sent_again(site: Site) -> None:
    agent = await site.rig.make_agent()
    site.store.failures = 1
    with with_faults():
        await asyncio.wait_for(send_json(site, agent), WAIT_SECONDS)
    assert len(site.requests) == 2
    assert len(await site.runs(agent)) == 1
