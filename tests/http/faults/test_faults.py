"""Every fault of a provider, over every wire and way of sending: the caller gets an error, the run fails with its
reason, and the next message works (wire-v1 §1.11, §4.6, §5.3, §5.7)."""

import asyncio
from dataclasses import dataclass

import pytest
from tests.support.http_site import (
    LONG_SILENCE_SECONDS,
    PATHS,
    SILENCE_SECONDS,
    WIRES,
    FailureReport,
    Site,
    as_stream,
    open_site,
)

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.http.error_status import DO_NOT_RETRY
from holdfast.testing import (
    Answer,
    EmptyAnswer,
    Hang,
    HangUp,
    HttpError,
    MalformedJson,
    MalformedSse,
    NoAnswer,
    ResetConnection,
    Scripted,
    SlowHeaders,
    TruncatedStream,
)

on_one_site = pytest.mark.asyncio(loop_scope="module")
ANSWER = Answer("One two three four five six.")


@dataclass(frozen=True)
class Fault:
    """What the provider does; the HTTP status of a JSON send, the type on the run, and what of its words is in detail."""

    scripted: Scripted
    status: int
    error_type: str = "llm_error"
    words: str = ""
    stop_reason: str = "llm_api_error"

    @property
    def is_silence(self) -> bool:
        return self.error_type == "llm_timeout" and not isinstance(self.scripted, HttpError)


def error(status: int, answered: int, error_type: str = "llm_error") -> Fault:
    return Fault(HttpError(status, "TEST: the dog ate it"), answered, error_type, "the dog ate it")


FAULTS = {
    "401": error(401, 401, "llm_authentication"),
    "403": error(403, 401, "llm_authentication"),
    "404": error(404, 400),
    "408": error(408, 504, "llm_timeout"),
    "409": error(409, 500),
    "413": error(413, 400),
    "429": error(429, 429, "llm_rate_limit"),
    "500": error(500, 500),
    "503": error(503, 503),
    "529": error(529, 503),
    "a proxy's page": Fault(
        HttpError(502, page="<html>TEST: bad gateway</html>"), 500, words="TEST: bad gateway"
    ),
    "malformed JSON": Fault(MalformedJson("{'TEST': no"), 500, words="{'TEST': no"),
    "malformed SSE": Fault(MalformedSse("{TEST: no"), 500, words="{TEST: no"),
    "an odd event": Fault(MalformedSse('{"choices": 7, "type": [], "candidates": "TEST"}'), 500),
    "a truncated stream": Fault(TruncatedStream(3, ANSWER), 500, words="ended in the middle"),
    "hung up": Fault(Answer("One ", HangUp()), 500, words="closed the connection"),
    "fails in the middle": Fault(Answer("One ", HttpError(500, "TEST: oops")), 500, words="oops"),
    "falls silent": Fault(Answer("One ", Hang()), 504, "llm_timeout"),
    "no body": Fault(EmptyAnswer(), 500),
    "says nothing": Fault(
        Answer(), 500, "llm_empty_response", "neither text nor", "invalid_llm_response"
    ),
    "no answer": Fault(NoAnswer(), 504, "llm_timeout"),
    "slow headers": Fault(SlowHeaders(5 * SILENCE_SECONDS, ANSWER), 504, "llm_timeout"),
    "reset": Fault(ResetConnection(), 500),
}


@pytest.fixture
def site(running: Site, running_impatient: Site, fault: Fault) -> Site:
    """Silence is what some faults are; where it is not, a busy machine must not make one of it."""
    chosen = running_impatient if fault.is_silence else running
    chosen.provider.reset()
    return chosen


async def assert_on_record(site: Site, report: FailureReport, fault: Fault) -> None:
    """The run and its step tell the same, on every way."""
    run = await site.get(f"/v1/runs/{report.run_id}")
    assert (run["status"], run["stop_reason"]) == ("failed", fault.stop_reason)
    problem = run["metadata"]["error"]
    assert problem["error_type"] == fault.error_type
    assert problem["run_id"] == report.run_id
    assert problem["message_type"] == "error_message"
    assert problem["message"]
    assert fault.words in problem["detail"]
    assert problem["detail"]
    (step,) = await site.get(f"/v1/runs/{report.run_id}/steps")
    assert (step["status"], step["error_type"]) == ("failed", fault.error_type)
    assert step["error_data"]["details"] == problem["detail"]
    assert step["stop_reason"] == fault.stop_reason


def assert_reported(report: FailureReport, fault: Fault) -> None:
    """The answer has the error in the form of its way of sending."""
    if report.stream:
        *chunks, stop, problem = report.stream
        assert report.status == 200
        assert stop == {"message_type": "stop_reason", "stop_reason": fault.stop_reason}
        assert problem["message_type"] == "error_message"
        assert (problem["error_type"], problem["run_id"]) == (fault.error_type, report.run_id)
        assert fault.words in problem["detail"]
        assert report.text.endswith("\n\ndata: [DONE]\n\n")
        assert {chunk["message_type"] for chunk in chunks} <= {"assistant_message"}
    elif report.text:
        assert report.status == fault.status
        assert fault.words in report.text


@pytest.mark.wire(57, 149)
@on_one_site
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_every_fault_is_reported_on_every_way_and_harms_nothing(
    site: Site, fault: Fault
) -> None:
    agent_id = await site.create_agent(WIRES["chat"])
    site.provider.respond_with(lambda _: fault.scripted)
    for send in PATHS:
        async with asyncio.timeout(10):
            report = await send(site, agent_id)
        assert_reported(report, fault)
        await assert_on_record(site, report, fault)
    await assert_unharmed(site, agent_id)


@on_one_site
@pytest.mark.parametrize("wire", ["responses", "anthropic", "google"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_every_fault_is_reported_on_every_wire_and_harms_nothing(
    site: Site, wire: str, fault: Fault
) -> None:
    agent_id = await site.create_agent(WIRES[wire])
    # Each time: a connection that was kept open and is reset is replaced once, by the transport.
    site.provider.respond_with(lambda _: fault.scripted)
    async with asyncio.timeout(10):
        report = await as_stream(site, agent_id)
    assert_reported(report, fault)
    await assert_on_record(site, report, fault)
    await assert_unharmed(site, agent_id)


async def assert_unharmed(site: Site, agent_id: str) -> None:
    """Nothing of the failed runs is in the history, and the next message works."""
    assert await site.list_texts(agent_id) == []
    site.provider.respond_with(None)
    site.provider.script("Here I am.")
    answer = await site.http.post(f"/v1/agents/{agent_id}/messages", json={"input": "And now?"})
    assert answer.status_code == 200, answer.text
    assert await site.list_texts(agent_id) == ["And now?", "Here I am."]
    assert site.provider.requests[-1].refused is None


@pytest.mark.wire(50, 51, 52, 53, 54, 55, 57)
@pytest.mark.parametrize("name", ["500", "no answer", "429", "401"])
async def test_failures_are_on_record_in_every_database(any_store: SqlStore, name: str) -> None:
    fault = FAULTS[name]
    silence_seconds = SILENCE_SECONDS if fault.is_silence else LONG_SILENCE_SECONDS
    async with open_site(any_store, silence_seconds=silence_seconds) as site:
        agent_id = await site.create_agent(WIRES["chat"])
        site.provider.respond_with(lambda _: fault.scripted)
        for send in PATHS:
            report = await send(site, agent_id)
            assert_reported(report, fault)
            await assert_on_record(site, report, fault)


@pytest.mark.wire(56, 57)
async def test_a_bug_of_the_server_is_an_internal_error_on_every_way(
    any_store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(*_: object, **__: object) -> None:
        raise RuntimeError("TEST: a bug")

    monkeypatch.setattr("holdfast.adapters.models.pydantic_ai.bridge.to_messages", raise_error)
    bug = Fault(Answer(), 500, "internal_error", "TEST: a bug", "error")
    async with open_site(any_store) as site:
        agent_id = await site.create_agent(WIRES["chat"])
        for send in PATHS:
            report = await send(site, agent_id)
            assert_reported(report, bug)
            await assert_on_record(site, report, bug)
        # The turn may have done things already: a client must not send it again by itself.
        answer = await site.http.post(f"/v1/agents/{agent_id}/messages", json={"input": "Hi"})
        assert answer.headers.items() >= DO_NOT_RETRY.items()
