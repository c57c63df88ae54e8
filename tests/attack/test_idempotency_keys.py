"""A request with the Idempotency-Key of an earlier one gets that one's run, and no second run."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx import Response
from letta_client import APIStatusError
from tests.doubles.model import call_answer
from tests.support.rig import ACTOR, WAIT_SECONDS
from tests.support.unreliable_site import (
    ALL_SENDS,
    WAITING_SENDS,
    Send,
    Site,
    hold_thread,
    open_unreliable_site,
    send_json,
    send_stream,
)

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.runs import Run, RunStatus
from holdfast.errors import ModelRejectedRequest, ThreadBusy
from holdfast.http.json_body import MAX_BYTES_ON_LOOP
from holdfast.http.letta_v1 import sends
from holdfast.usecases import messages
from holdfast.usecases.idempotency import MAX_KEY_CHARS

KEY = {"Idempotency-Key": "one key"}
ASK = rules.RequiresApproval(tool_name="ask")


@pytest.fixture
async def any_site(blank_store_url: str, cipher: Cipher) -> AsyncIterator[Site]:
    """On both databases."""
    store = await open_store(blank_store_url, cipher=cipher)
    async with open_unreliable_site(store, busy_wait_seconds=30.0) as site:
        yield site
    await store.close()


def content(answer: Any) -> Any:
    """What must be the same in both answers: all but a stream's pings and the time of an answer."""
    if isinstance(answer, list):
        return [content(item) for item in answer]
    shown = answer if isinstance(answer, dict) else answer.model_dump(mode="json")
    # The run of an async send has gone on meanwhile.
    return shown["id"] if shown.get("id", "").startswith("run-") else shown


@pytest.mark.parametrize("send", ALL_SENDS)
async def test_a_repeated_request_gets_the_same_answer_and_runs_once(
    site: Site, send: Send
) -> None:
    agent = await site.rig.make_agent()
    async with asyncio.timeout(WAIT_SECONDS):
        first = await send(site, agent, extra_headers=KEY)
        await site.wait_for_end((await site.runs(agent))[0]["id"])
        again = await send(site, agent, extra_headers=KEY)
    assert content(again) == content(first)
    assert len(await site.runs(agent)) == len(site.rig.model.questions) == 1


@pytest.mark.parametrize("send", ALL_SENDS)
async def test_requests_with_one_key_at_the_same_moment_run_once(
    any_site: Site, send: Send
) -> None:
    site = any_site
    agent = await site.rig.make_agent()
    async with asyncio.timeout(WAIT_SECONDS):
        answers = await asyncio.gather(*(send(site, agent, extra_headers=KEY) for _ in range(5)))
    assert [content(answer) for answer in answers] == [content(answers[0])] * 5
    (run,) = await site.runs(agent)
    await site.wait_for_end(run["id"])


@pytest.mark.parametrize("send", WAITING_SENDS)
async def test_a_repeated_request_waits_for_the_run_that_goes_on(site: Site, send: Send) -> None:
    agent = await site.rig.make_agent()
    site.rig.model.gate.clear()
    both = [asyncio.create_task(send(site, agent, extra_headers=KEY))]
    await asyncio.wait_for(site.rig.model.asked.wait(), WAIT_SECONDS)
    both.append(asyncio.create_task(send(site, agent, extra_headers=KEY)))
    site.rig.model.gate.set()
    first, again = await asyncio.wait_for(asyncio.gather(*both), WAIT_SECONDS)
    assert content(again) == content(first)
    assert len(await site.runs(agent)) == 1


async def test_a_client_that_was_told_of_an_outage_finds_its_run_by_the_key(site: Site) -> None:
    """The answer is lost with the connection, so the client cannot know that the message was stored."""
    agent = await site.rig.make_agent()
    site.rig.model.gate.clear()
    lost = asyncio.create_task(send_json(site, agent, extra_headers=KEY))
    await asyncio.wait_for(site.rig.model.asked.wait(), WAIT_SECONDS)
    lost.cancel()
    site.rig.model.gate.set()
    await asyncio.wait_for(send_json(site, agent, extra_headers=KEY), WAIT_SECONDS)
    assert len(await site.runs(agent)) == 1


async def test_a_repeated_request_starts_a_run_that_is_stored_and_not_queued_yet(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come between the commit of the first request and its ticket."""
    agent = await site.rig.make_agent()
    path, body = f"/v1/agents/{agent.id}/messages", {"input": "Hi"}
    monkeypatch.setattr(site.rig.services.dispatch, "submit", lambda _: None)
    await post(site, f"{path}/async", body)
    monkeypatch.undo()
    again = await post(site, f"{path}/async", body)
    assert (await site.wait_for_end(again.json()["id"])).stop_reason == "end_turn"


async def post(site: Site, path: str, body: dict[str, Any], **headers: str) -> Response:
    sending = site.http.post(path, json=body, headers=KEY | headers)
    return await asyncio.wait_for(sending, WAIT_SECONDS)


async def test_a_key_is_refused_for_another_body_path_or_agent(site: Site) -> None:
    agent, other = await site.rig.make_agent(), await site.rig.make_agent()
    path = f"/v1/agents/{agent.id}/messages"
    first = await post(site, path, {"input": "Hi", "max_steps": 3})
    assert first.status_code == 200
    # The order of the fields is not part of the request.
    same = await post(site, path, {"max_steps": 3, "input": "Hi"})
    assert same.json() == first.json()
    run_id = (await site.runs(agent))[0]["id"]
    others: list[tuple[str, dict[str, Any]]] = [
        (path, {"input": "Bye", "max_steps": 3}),
        (f"{path}/stream", {"input": "Hi", "max_steps": 3}),
        (f"/v1/agents/{other.id}/messages", {"input": "Hi", "max_steps": 3}),
        ("/v1/conversations/default/messages", {"agent_id": agent.id, "input": "Hi"}),
    ]
    for changed, body in others:
        refused = await post(site, changed, body)
        assert refused.status_code == 422, changed
        assert run_id in refused.json()["detail"]
    assert len(await site.runs(agent)) == 1
    assert await site.runs(other) == []


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_CHARS + 1)])
async def test_a_key_that_is_empty_or_too_long_is_refused(site: Site, key: str) -> None:
    agent = await site.rig.make_agent()
    path = f"/v1/agents/{agent.id}/messages"
    refused = await post(site, path, {"input": "Hi"}, **{"Idempotency-Key": key})
    assert refused.status_code == 422
    assert str(MAX_KEY_CHARS) in refused.json()["detail"]
    assert await site.runs(agent) == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not JSON", 422),
        (b"", 422),
        (b'{"input": "\\ud800"}', 422),
        (b'{"input": "Hi", "unknown": 123456789012345678901234567890}', 200),
        (b'{"input": "Hi", "unknown": 1e999}', 422),
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_a_key_with_a_strange_body_is_no_server_error(
    site: Site, body: bytes, status: int, content_type: str
) -> None:
    agent = await site.rig.make_agent()
    answer = await site.http.post(
        f"/v1/agents/{agent.id}/messages",
        content=body,
        headers=KEY | {"Content-Type": content_type},
    )
    assert answer.status_code == (422 if content_type == "text/plain" else status), answer.text


async def test_a_key_of_the_greatest_length_is_taken(site: Site) -> None:
    agent = await site.rig.make_agent()
    key = {b"Idempotency-Key": b"\xfc" * MAX_KEY_CHARS}
    path = f"/v1/agents/{agent.id}/messages"
    for _ in range(2):
        taken = await site.http.post(path, json={"input": "Hi"}, headers=key)
        assert taken.status_code == 200
    assert len(await site.runs(agent)) == 1


@pytest.mark.parametrize(("chars", "is_on_loop"), [(10, True), (MAX_BYTES_ON_LOOP, False)])
async def test_a_large_body_with_a_key_does_not_stop_the_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch, chars: int, is_on_loop: bool
) -> None:
    threads: list[int] = []
    plain = sends._sort_fields

    def record_thread(body: bytes) -> bytes:
        threads.append(threading.get_ident())
        return plain(body)

    monkeypatch.setattr(sends, "_sort_fields", record_thread)
    agent = await site.rig.make_agent()
    sent = await post(site, f"/v1/agents/{agent.id}/messages", {"input": "x" * chars})
    assert sent.status_code == 200
    assert [item == threading.get_ident() for item in threads] == [is_on_loop]


async def pause(site: Site) -> tuple[Agent, str]:
    """An agent that waits for an approval, and the request's id."""
    agent = await site.rig.make_agent("ask", rules=(ASK,))
    site.rig.model.script = [call_answer(("call-1", "ask"))]
    await site.rig.say(agent)
    return agent, (await site.http.get("/v1/approvals/")).json()[0]["id"]


@pytest.mark.parametrize("end", ["failed", "cancelled", "paused"])
@pytest.mark.parametrize("route", ["messages", "messages/stream"])
async def test_a_repeated_request_gets_the_same_answer_however_its_run_ended(
    site: Site, end: str, route: str
) -> None:
    agent = await site.rig.make_agent("ask", rules=(ASK,))
    path, body = f"/v1/agents/{agent.id}/{route}", {"input": "Hi"}
    if end == "failed":
        site.rig.model.script = [ModelRejectedRequest("TEST: no")]
    elif end == "paused":
        site.rig.model.script = [call_answer(("call-1", "ask"))]
    site.rig.model.gate.clear()
    sending = asyncio.create_task(post(site, path, body))
    await asyncio.wait_for(site.rig.model.asked.wait(), WAIT_SECONDS)
    if end == "cancelled":
        await site.http.post(f"/v1/agents/{agent.id}/messages/cancel", json={})
    site.rig.model.gate.set()
    first = await sending
    again = await post(site, path, body)
    assert (again.status_code, again.text) == (first.status_code, first.text)
    if first.status_code >= 400:
        assert again.headers["x-should-retry"] == "false"
    assert len(await site.runs(agent)) == len(site.rig.model.questions) == 1


async def test_an_answer_in_the_inbox_that_is_repeated_with_its_key_is_given_once(
    site: Site,
) -> None:
    agent, request_id = await pause(site)
    first = await post(site, f"/v1/approvals/{request_id}", {"approve": True})
    assert first.status_code == 200, first.text
    await site.wait_for_end(first.json()["id"])
    again = await post(site, f"/v1/approvals/{request_id}", {"approve": True})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    changed = await post(site, f"/v1/approvals/{request_id}", {"approve": False})
    assert changed.status_code == 422
    assert len(await site.runs(agent)) == 2
    assert len(site.rig.toolbox.started) == 1


async def test_an_approval_that_is_repeated_with_its_key_adds_no_run(site: Site) -> None:
    agent, _ = await pause(site)
    body = approval_body()
    answers = [await post(site, f"/v1/agents/{agent.id}/messages", body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    assert answers[0].json() == answers[1].json()
    assert len(await site.runs(agent)) == 2


def approval_body() -> dict[str, Any]:
    entry = {"type": "approval", "tool_call_id": "call-1", "approve": True}
    return {"messages": [{"type": "approval", "approvals": [entry]}]}


@pytest.mark.parametrize("route", ["inbox", "messages", "messages/stream", "messages/async"])
async def test_answers_with_one_key_at_the_same_moment_are_one(any_site: Site, route: str) -> None:
    """The first one leaves no call to answer: the others must not be refused for that."""
    site = any_site
    agent, request_id = await pause(site)
    path, body = f"/v1/agents/{agent.id}/{route}", approval_body()
    if route == "inbox":
        path, body = f"/v1/approvals/{request_id}", {"approve": True}
    answers = await asyncio.gather(*(post(site, path, body) for _ in range(5)))
    assert [answer.status_code for answer in answers] == [200] * 5, answers[-1].text
    assert "error_message" not in "".join(answer.text for answer in answers)
    answering, _ = await site.runs(agent)
    await site.wait_for_end(answering["id"])
    assert len(site.rig.toolbox.started) == 1


async def test_compactions_with_one_key_at_the_same_moment_are_one(any_site: Site) -> None:
    site = any_site
    agent = await site.rig.make_agent()
    for _ in range(3):
        await site.rig.say(agent)
    path = f"/v1/agents/{agent.id}/summarize"
    answers = await asyncio.gather(*(post(site, path, {}) for _ in range(5)))
    assert [answer.json() for answer in answers] == [answers[0].json()] * 5
    assert len(await site.runs(agent)) == 4


async def test_a_compaction_that_is_repeated_with_its_key_is_done_once(site: Site) -> None:
    agent = await site.rig.make_agent()
    for _ in range(3):
        await site.rig.say(agent)
    path = f"/v1/agents/{agent.id}/summarize"
    answers = [await post(site, path, {}) for _ in range(2)]
    assert answers[0].status_code == 200, answers[0].text
    assert answers[0].json() == answers[1].json()
    assert len(await site.runs(agent)) == 4


@pytest.mark.parametrize("busy_wait_seconds", [0.2])
@pytest.mark.parametrize("send", [send_json, send_stream])
async def test_a_withdrawn_message_frees_its_key_and_all_its_senders_are_told(
    site: Site, send: Send
) -> None:
    agent = await site.rig.make_agent()
    holder = await hold_thread(site, agent)
    letta = site.letta
    site.letta = letta.with_options(max_retries=0)
    tasks = [asyncio.create_task(send(site, agent, extra_headers=KEY)) for _ in range(3)]
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_SECONDS)
    assert [getattr(item, "status_code", item) for item in outcomes] == [409] * 3
    assert isinstance(outcomes[0], APIStatusError)
    assert "x-should-retry" not in outcomes[0].response.headers
    site.rig.model.gate.set()
    await asyncio.wait_for(holder, WAIT_SECONDS)
    await asyncio.wait_for(send(site, agent, extra_headers=KEY), WAIT_SECONDS)
    assert len(await site.runs(agent)) == 2


async def wait_for_queued(site: Site) -> Run:
    """The run that waits behind the one that holds the thread."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            for run in await site.rig.read(lambda tx: tx.runs.list_live()):
                if run.status is RunStatus.QUEUED:
                    return run


@pytest.mark.parametrize("send", [send_json, send_stream])
async def test_a_sender_is_told_that_another_one_has_withdrawn_the_run_for_which_it_waits(
    site: Site, send: Send
) -> None:
    agent = await site.rig.make_agent()
    holder = await hold_thread(site, agent)
    site.letta = site.letta.with_options(max_retries=0)
    waiting = asyncio.create_task(send(site, agent, extra_headers=KEY))
    queued = await wait_for_queued(site)
    with pytest.raises(ThreadBusy):
        await messages._withdraw(site.rig.services, queued)
    with pytest.raises(APIStatusError) as refused:
        await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert refused.value.status_code == 409
    site.rig.model.gate.set()
    await asyncio.wait_for(holder, WAIT_SECONDS)


async def test_a_key_is_kept_as_long_as_its_run(any_site: Site) -> None:
    site = any_site
    agent = await site.rig.make_agent()
    await send_json(site, agent, extra_headers=KEY)
    (run,) = await site.runs(agent)
    found = await site.rig.read(lambda tx: tx.runs.find_by_key(ACTOR.organization_id, "one key"))
    assert found is not None
    assert found[0].id == run["id"]
    assert (await site.http.delete(f"/v1/runs/{run['id']}")).status_code == 200
    gone = await site.rig.read(lambda tx: tx.runs.find_by_key(ACTOR.organization_id, "one key"))
    assert gone is None


def otid_body(agent: Agent, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Hi", "otid": "b1a6f2f0-6c05-4b3a-8a5e-2b2b6ee1a001"}
    return {"agent_id": agent.id, "messages": [message], "background": True, **more}


async def test_an_otid_is_never_a_key_for_sends_to_an_agent(site: Site) -> None:
    agent = await site.rig.make_agent()
    for path, more in [("", {"background": False}), ("/stream", {}), ("/async", {})]:
        for _ in range(2):
            body = otid_body(agent, **more)
            del body["agent_id"]
            sent = await site.http.post(f"/v1/agents/{agent.id}/messages{path}", json=body)
            assert sent.status_code == 200, sent.text
    runs = await site.runs(agent)
    for run in runs:
        await site.wait_for_end(run["id"])
    assert len(runs) == 6


async def test_an_otid_is_a_key_for_background_sends_to_a_conversation_only(site: Site) -> None:
    agent = await site.rig.make_agent()
    for conversation in ("default", await site.conversation(agent)):
        path = f"/v1/conversations/{conversation}/messages"
        before = len(await site.runs(agent))
        for _ in range(2):
            assert (await site.http.post(path, json=otid_body(agent))).status_code == 200
        assert len(await site.runs(agent)) == before + 1
        for _ in range(2):
            body = otid_body(agent, background=False)
            assert (await site.http.post(path, json=body)).status_code == 200
        assert len(await site.runs(agent)) == before + 3
