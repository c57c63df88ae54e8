"""A run's life in the log: which events, in which order, about whom; and nothing of what was said."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast import logs
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.addresses import parse_allowed
from holdfast.core.agents import Secret
from holdfast.engine import worker
from holdfast.engine.callbacks import CallbackDelivery
from holdfast.errors import ModelRejectedRequest
from holdfast.http.letta_v1.to_wire.callbacks import callback_body
from holdfast.testing import FakeClock
from holdfast.usecases import runs


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logs.JsonFormatter())
        self.told: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(json.loads(self.format(record)))

    def lines_of_run(self, run_id: str) -> list[dict[str, Any]]:
        return [line for line in self.told if line.get("run_id") == run_id]

    def events_of_run(self, run_id: str) -> list[str]:
        return [line["event"] for line in self.lines_of_run(run_id)]


@pytest.fixture
def lines() -> Iterator[Lines]:
    log, handler = logging.getLogger("holdfast"), Lines()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


async def test_a_run_is_logged_from_its_sending_to_its_end(rig: Rig, lines: Lines) -> None:
    rig.model.script = [call_answer(("call_1", "slow")), text_answer("The word is s3cret.")]
    async with rig.run_worker():
        agent = await rig.make_agent("slow")
        secret = Secret(id="agent-env-1", key="WORD", value="s3cret")
        await rig.services.store.write(lambda tx: tx.agents.set_secrets(agent.id, [secret]))
        run = (await rig.say(agent, "What is the s3cret word?")).run
        await rig.wait_for_end(run)
    assert lines.events_of_run(run.id) == [
        "run.queued",
        "run.started",
        "step.started",
        "model.answered",
        "tool.returned",
        "step.started",
        "model.answered",
        "run.ended",
    ]
    carried = lines.lines_of_run(run.id)[1:]
    assert {line["agent_id"] for line in carried} == {agent.id}
    assert {line["organization_id"] for line in carried} == {ACTOR.organization_id}
    steps = [line.get("step_id") for line in carried]
    assert steps[0] is None
    assert len(set(steps[1:4])) == len(set(steps[4:])) == 1
    assert steps[1] != steps[4]
    end = carried[-1]
    assert (end["level"], end["status"], end["stop_reason"]) == ("info", "completed", "end_turn")
    assert (end["steps"], end["prompt_tokens"], end["completion_tokens"]) == (2, 20, 10)
    assert "s3cret" not in json.dumps(lines.told)
    assert "What is" not in json.dumps(lines.told)


async def test_a_failed_run_says_why_and_a_cancelled_one_that_it_was(
    rig: Rig, lines: Lines
) -> None:
    rig.model.script = [ModelRejectedRequest("no")]
    async with rig.run_worker():
        agent = await rig.make_agent()
        failed = (await rig.say(agent)).run
        rig.model.gate = asyncio.Event()
        rig.model.asked.clear()
        run = await rig.submit(agent)
        waiting = await rig.submit(agent)
        await rig.model.asked.wait()
        await runs.cancel(rig.services, ACTOR, waiting.id)
        await runs.cancel(rig.services, ACTOR, run.id)
    assert lines.lines_of_run(failed.id)[-1]["failure"] == ModelRejectedRequest.kind
    assert lines.events_of_run(run.id)[-2:] == ["run.cancelling", "run.ended"]
    assert lines.lines_of_run(run.id)[-1]["status"] == "cancelled"
    assert lines.events_of_run(waiting.id) == ["run.queued", "run.ended"]


async def test_actions_on_a_run_are_logged_with_its_agent(
    rig: Rig, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tasks that do not carry it: the watchdog, and who tells of its end."""
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.005)
    clock = FakeClock()
    allowed = parse_allowed(["callback.example"])
    outgoing = GuardedOutgoing(allowed, Lookup(allowed, lambda _host, _port: []))
    rig.services = replace(rig.services, clock=clock, outgoing=outgoing)
    rig.model.gate = asyncio.Event()
    delivery = asyncio.create_task(CallbackDelivery(rig.services, callback_body).run())
    async with rig.run_worker():
        agent = await rig.make_agent()
        run = await rig.submit(agent, callback_url="http://callback.example/")
        await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        clock.advance(rig.services.limits.run_stall_seconds + 1)
        await rig.wait_for_end(run)
        async with asyncio.timeout(WAIT_SECONDS):
            while "callback.not_delivered" not in lines.events_of_run(run.id):
                await rig.read(lambda tx: tx.callbacks.next_due_at(run.created_at))
    delivery.cancel()
    await asyncio.gather(delivery, return_exceptions=True)
    told = {line["event"]: line.get("agent_id") for line in lines.lines_of_run(run.id)}
    assert told["run.stalled"] == told["callback.not_delivered"] == agent.id


async def test_a_run_that_is_taken_up_again_says_so(store: SqliteStore, lines: Lines) -> None:
    first, second = Rig(store), Rig(store)
    first.model.gate = asyncio.Event()
    async with first.run_worker():
        run = await first.submit(await first.make_agent())
        await first.model.asked.wait()
    async with second.run_worker():
        await second.wait_for_end(run)
    resumed = [line for line in lines.lines_of_run(run.id) if line["event"] == "run.resumed"]
    assert [line["recoveries"] for line in resumed] == [1]
    assert lines.events_of_run(run.id)[-1] == "run.ended"
