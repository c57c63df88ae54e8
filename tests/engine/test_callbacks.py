"""Callbacks: told at least once, to whoever was named and to nobody else, whatever the receiver does."""

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver
from tests.doubles.model import call_answer, text_answer
from tests.support.rig import ACTOR, Rig
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.agents import Agent
from holdfast.core.callbacks import CallbackOutcome
from holdfast.core.runs import Run, RunStatus
from holdfast.core.tool_rules import RequiresApproval
from holdfast.engine import callbacks
from holdfast.engine.callbacks import CallbackDelivery
from holdfast.errors import AddressForbidden, ModelRateLimited
from holdfast.http.letta_v1.to_wire.callbacks import callback_body
from holdfast.ports.services import Limits
from holdfast.ports.store import Transaction
from holdfast.usecases import runs

SECRET = "a secret between us"


@pytest.fixture
def rig(store: SqliteStore) -> Rig:
    rig = Rig(store, Limits(callback_attempts=3))
    allow(rig, parse_allowed(["127.0.0.1"]))
    return rig


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with run_receiver() as receiver:
        yield receiver


def allow(rig: Rig, allowed: AllowedAddresses, resolves_to: str = "127.0.0.1") -> None:
    lookup = Lookup(allowed, lambda _host, _port: [resolves_to])
    rig.services = replace(rig.services, outgoing=GuardedOutgoing(allowed, lookup))


@asynccontextmanager
async def run_delivery(rig: Rig, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    quick = {"first_wait_seconds": 0.001, "timeout_seconds": WAIT_SECONDS} | options
    delivery = asyncio.create_task(CallbackDelivery(rig.services, callback_body, **quick).run())
    try:
        yield delivery
    finally:
        delivery.cancel()
        await asyncio.wait_for(asyncio.gather(delivery, return_exceptions=True), WAIT_SECONDS)


async def run_with_callback(rig: Rig, url: str, agent: Agent | None = None) -> Run:
    run = await rig.submit(agent or await rig.make_agent(), callback_url=url)
    return await rig.wait_for_end(run)


async def wait_for_outcome(rig: Rig, run: Run) -> CallbackOutcome:
    """What came of it, once nothing more is due."""

    def look(tx: Transaction) -> CallbackOutcome | None:
        if tx.callbacks.next_due_at(run.created_at - timedelta(days=1)) is not None:
            return None
        return tx.runs.get(ACTOR.organization_id, run.id).callback

    async with asyncio.timeout(WAIT_SECONDS):
        while (outcome := await rig.read(look)) is None:
            pass
    return outcome


async def test_the_end_of_a_run_is_delivered_in_the_form_of_v1(
    rig: Rig, receiver: Receiver
) -> None:
    rig.model.script = [text_answer("Hello")]
    async with rig.run_worker(), run_delivery(rig):
        run = await run_with_callback(rig, f"{receiver.url}/hook?who=me")
        heard = await receiver.next_request()
        outcome = await wait_for_outcome(rig, run)

    body = json.loads(heard.body)
    assert (heard.method, heard.target) == ("POST", "/hook?who=me")
    assert heard.headers["content-type"] == "application/json"
    assert body.keys() == {"run_id", "status", "completed_at", "metadata"}
    assert (body["run_id"], body["status"]) == (run.id, "completed")
    assert run.completed_at is not None
    assert datetime.fromisoformat(body["completed_at"]) == run.completed_at.replace(tzinfo=None)
    assert body["metadata"]["run_type"] == "send_message"
    result = body["metadata"]["result"]
    assert [item["message_type"] for item in result["messages"]] == [
        "user_message",
        "assistant_message",
    ]
    assert result["messages"][1]["content"] == "Hello"
    assert result["stop_reason"]["stop_reason"] == "end_turn"
    assert result["usage"]["total_tokens"] == 15
    assert (outcome.status_code, outcome.error) == (200, None)
    assert outcome.sent_at is not None


async def test_a_receiver_that_fails_is_tried_again_under_the_same_key(
    rig: Rig, receiver: Receiver
) -> None:
    receiver.answers = [CannedResponse(500), CannedResponse(503), CannedResponse(204)]
    async with rig.run_worker(), run_delivery(rig):
        run = await run_with_callback(rig, receiver.url)
        heard = [await receiver.next_request() for _ in range(3)]
        outcome = await wait_for_outcome(rig, run)

    assert {item.headers["idempotency-key"] for item in heard} == {f"callback-{run.id}"}
    assert len({item.body for item in heard}) == 1
    assert (outcome.status_code, outcome.error) == (204, None)


async def test_a_receiver_that_never_takes_it_is_given_up(rig: Rig, receiver: Receiver) -> None:
    receiver.answers = [CannedResponse(500)]
    async with rig.run_worker(), run_delivery(rig):
        run = await run_with_callback(rig, receiver.url)
        outcome = await wait_for_outcome(rig, run)

    assert len(receiver.all_requests) == 3
    assert outcome.status_code == 500
    assert outcome.error == "The receiver answered with the status 500."
    assert run.status is RunStatus.COMPLETED


async def test_a_redirect_is_not_followed(rig: Rig, receiver: Receiver) -> None:
    receiver.answers = [CannedResponse(307, {"Location": f"{receiver.url}/inside"})]
    async with rig.run_worker(), run_delivery(rig):
        run = await run_with_callback(rig, f"{receiver.url}/hook")
        outcome = await wait_for_outcome(rig, run)

    assert {item.target for item in receiver.all_requests} == {"/hook"}
    assert outcome.status_code == 307
    assert outcome.error is not None


async def test_a_receiver_that_hangs_delays_no_other_callback(rig: Rig, receiver: Receiver) -> None:
    """It has its few places, however many runs want to tell it something."""
    async with run_receiver() as hanging, rig.run_worker(), run_delivery(rig):
        hanging.answers = [None]
        agent = await rig.make_agent()
        url = f"http://hanging.example:{hanging.port}/"
        for _ in range(callbacks.MAX_CONCURRENT_PER_HOST + 2):
            await run_with_callback(rig, url, agent)
        for _ in range(callbacks.MAX_CONCURRENT_PER_HOST):
            await hanging.next_request()
        run = await run_with_callback(rig, receiver.url, agent)
        heard = await receiver.next_request()

    assert json.loads(heard.body)["run_id"] == run.id
    assert len(hanging.all_requests) == callbacks.MAX_CONCURRENT_PER_HOST


async def test_an_answer_that_does_not_come_in_time_is_a_failure(
    rig: Rig, receiver: Receiver
) -> None:
    receiver.answers = [None]
    async with rig.run_worker(), run_delivery(rig, timeout_seconds=0.01):
        run = await run_with_callback(rig, receiver.url)
        outcome = await wait_for_outcome(rig, run)

    assert (outcome.sent_at, outcome.status_code) == (None, None)
    assert outcome.error == "127.0.0.1 gave no answer within 0.01 s."


async def test_the_receiver_can_know_who_sent_it(rig: Rig, receiver: Receiver) -> None:
    async with rig.run_worker(), run_delivery(rig, secret=SECRET):
        await run_with_callback(rig, receiver.url)
        heard = await receiver.next_request()

    key, sent_at = heard.headers["webhook-id"], heard.headers["webhook-timestamp"]
    signed = f"{key}.{sent_at}.".encode() + heard.body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    assert heard.headers["webhook-signature"] == f"v1,{base64.b64encode(expected).decode()}"
    assert key == heard.headers["idempotency-key"]


async def test_without_a_secret_nothing_is_signed(rig: Rig, receiver: Receiver) -> None:
    async with rig.run_worker(), run_delivery(rig):
        await run_with_callback(rig, receiver.url)
        heard = await receiver.next_request()

    assert "webhook-signature" not in heard.headers


async def test_a_run_that_waits_for_a_person_is_delivered(rig: Rig, receiver: Receiver) -> None:
    rig.model.script = [call_answer(("call-1", "careful"))]
    agent = await rig.make_agent("careful", rules=(RequiresApproval(tool_name="careful"),))
    async with rig.run_worker(), run_delivery(rig):
        await run_with_callback(rig, receiver.url, agent)
        body = json.loads((await receiver.next_request()).body)

    result = body["metadata"]["result"]
    assert body["status"] == "completed"
    assert result["stop_reason"]["stop_reason"] == "requires_approval"
    assert result["messages"][-1]["message_type"] == "approval_request_message"


async def test_a_run_that_failed_says_why(rig: Rig, receiver: Receiver) -> None:
    rig.model.script = [ModelRateLimited("slow down")]
    async with rig.run_worker(), run_delivery(rig):
        await run_with_callback(rig, receiver.url)
        body = json.loads((await receiver.next_request()).body)

    assert body["status"] == "failed"
    assert body["metadata"]["error"]["error_type"] == "llm_rate_limit"
    assert body["metadata"]["result"]["messages"] == []


async def test_a_run_that_is_cancelled_in_the_queue_is_delivered(
    rig: Rig, receiver: Receiver
) -> None:
    run = await rig.submit(await rig.make_agent(), callback_url=receiver.url)
    async with run_delivery(rig):
        await runs.cancel(rig.services, ACTOR, run.id)
        body = json.loads((await receiver.next_request()).body)

    assert (body["run_id"], body["status"]) == (run.id, "cancelled")


async def test_callbacks_of_a_dead_process_are_delivered_by_the_next(
    rig: Rig, receiver: Receiver
) -> None:
    async with rig.run_worker():
        run = await run_with_callback(rig, receiver.url)
    later = Rig(rig.services.store)
    allow(later, parse_allowed(["127.0.0.1"]))

    async with run_delivery(later):
        heard = await receiver.next_request()

    assert json.loads(heard.body)["run_id"] == run.id


async def test_of_several_processes_one_tells(
    blank_store_url: str, cipher: Cipher, receiver: Receiver
) -> None:
    # Not ``any_store``: a delivery that is stopped may leave a look into the store under way.
    store = await open_store(blank_store_url, cipher=cipher)
    one, other = Rig(store), Rig(store)
    for rig in (one, other):
        allow(rig, parse_allowed(["127.0.0.1"]))
    agent = await one.make_agent()
    async with one.run_worker():
        ended = [await run_with_callback(one, receiver.url, agent) for _ in range(8)]

    async with run_delivery(one), run_delivery(other):
        heard = [json.loads((await receiver.next_request()).body)["run_id"] for _ in range(8)]
        await wait_for_outcome(one, ended[0])
    await store.close()

    assert sorted(heard) == sorted(run.id for run in ended)
    assert len(receiver.all_requests) == 8


async def test_a_stop_gives_back_what_is_under_way(rig: Rig, receiver: Receiver) -> None:
    receiver.answers = [None, CannedResponse()]
    async with rig.run_worker():
        async with run_delivery(rig):
            run = await run_with_callback(rig, receiver.url)
            await receiver.next_request()
        async with run_delivery(rig):
            await receiver.next_request()
            outcome = await wait_for_outcome(rig, run)

    assert outcome.status_code == 200


async def test_a_name_that_resolves_to_a_private_address_gets_no_callback(rig: Rig) -> None:
    """What was public when it was sent may stand for something else later; trying again would not help."""
    allow(rig, AllowedAddresses(), resolves_to="169.254.169.254")
    async with rig.run_worker(), run_delivery(rig):
        run = await run_with_callback(rig, "http://rebound.example/latest/meta-data")
        outcome = await wait_for_outcome(rig, run)

    assert outcome.sent_at is None
    assert outcome.error is not None
    assert "rebound.example is not a public address" in outcome.error


async def test_an_address_that_is_evidently_private_is_refused_with_the_message(rig: Rig) -> None:
    agent = await rig.make_agent()

    with pytest.raises(AddressForbidden):
        await rig.submit(agent, callback_url="http://169.254.169.254/latest/meta-data")

    assert list(await rig.read(lambda tx: tx.runs.list_live())) == []


async def test_a_body_that_cannot_be_built_stops_no_other_callback(
    rig: Rig, receiver: Receiver
) -> None:
    agent = await rig.make_agent()

    def broken_for_one(run: Run, *rest: Any) -> bytes:
        if run.id == broken.id:
            raise ValueError(run.id)
        return callback_body(run, *rest)

    async with rig.run_worker():
        broken = await run_with_callback(rig, receiver.url, agent)
        whole = await run_with_callback(rig, receiver.url, agent)
        delivery = CallbackDelivery(rig.services, broken_for_one, first_wait_seconds=0.001)
        working = asyncio.create_task(delivery.run())
        heard = await receiver.next_request()
        outcome = await wait_for_outcome(rig, broken)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    assert json.loads(heard.body)["run_id"] == whole.id
    assert outcome.error == "The server could not deliver it."


async def test_waits_grow_and_are_not_alike(rig: Rig) -> None:
    delivery = CallbackDelivery(rig.services, callback_body)

    waits = [[delivery._wait_seconds(attempt) for _ in range(5)] for attempt in range(1, 9)]

    assert all(max(before) < min(after) for before, after in itertools.pairwise(waits[:6]))
    assert max(waits[-1]) <= callbacks.LONGEST_WAIT_SECONDS * 1.25
    assert len(set(waits[0])) > 1


async def test_a_run_that_cannot_be_read_stops_no_other_callback(
    rig: Rig, receiver: Receiver
) -> None:
    agent = await rig.make_agent()
    async with rig.run_worker():
        broken = await run_with_callback(rig, receiver.url, agent)
        whole = await run_with_callback(rig, receiver.url, agent)
    lost = structs.replace(broken, last_event_seq=broken.last_event_seq + 9)
    await rig.services.store.write(lambda tx: tx.runs.save(lost))

    async with run_delivery(rig) as delivery:
        heard = await receiver.next_request()
        outcome = await wait_for_outcome(rig, broken)
        still_delivers = not delivery.done()

    assert json.loads(heard.body)["run_id"] == whole.id
    assert outcome.error == "The server could not deliver it."
    assert still_delivers
