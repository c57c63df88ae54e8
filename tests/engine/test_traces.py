"""What a step's provider was sent and answered stands with the step, if an operator wants it (wire-v1 §3.6)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.agents import Secret
from holdfast.core.paging import Page
from holdfast.core.steps import StepQuery
from holdfast.core.traces import CallType, ProviderTrace, remove_secrets, truncate
from holdfast.errors import ModelOverloaded
from holdfast.ports.model import Exchange, ModelEvent, Question
from holdfast.ports.services import Limits
from holdfast.usecases import runs


class TracingModel:
    """The scripted model, with an exchange for each question it answers."""

    def __init__(self, rig: Rig, **fields: object) -> None:
        self._model = rig.model
        self._fields = fields
        object.__setattr__(rig.services, "model", self)

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        try:
            async with self._model.ask(question) as events:
                yield events
        finally:
            if question.exchanges is not None:
                question.exchanges.append(exchange(len(self._model.questions), **self._fields))


def exchange(number: int, **fields: object) -> Exchange:
    values: dict[str, object] = {
        "request": {"number": number},
        "response": {"said": "hello"},
        "status_code": 200,
        "error": None,
        "latency_ms": 7,
    }
    return Exchange(**values | fields)  # type: ignore[arg-type]  # the caller names the fields


def make_tracing_rig(store: SqlStore, **fields: object) -> Rig:
    rig = Rig(store, Limits(max_trace_bytes=1_000))
    TracingModel(rig, **fields)
    return rig


async def list_traces(rig: Rig) -> list[Sequence[ProviderTrace]]:
    """The traces of each step, in the order of the steps."""
    page = Page(limit=50)
    steps = await rig.read(lambda tx: tx.steps.list(ACTOR.organization_id, StepQuery(page=page)))
    return [
        await rig.read(lambda tx, id_=step.id: tx.traces.list_of_step(ACTOR.organization_id, id_))  # type: ignore[misc]  # mypy types no default of a lambda
        for step in reversed(steps)
    ]


async def test_each_step_keeps_its_exchange(any_store: SqlStore) -> None:
    rig = make_tracing_rig(any_store)
    rig.model.script = [call_answer(("call_1", "slow")), text_answer("Done.")]
    async with rig.run_worker():
        agent = await rig.make_agent("slow")
        reply = await rig.say(agent)
    first, second = await list_traces(rig)
    assert [(trace.request, trace.latency_ms) for trace in (*first, *second)] == [
        ({"number": 1}, 7),
        ({"number": 2}, 7),
    ]
    (trace,) = first
    assert (trace.run_id, trace.agent_id) == (reply.run.id, agent.id)
    assert trace.call_type is CallType.AGENT_STEP
    assert trace.model == agent.model


async def test_traces_go_with_their_run(any_store: SqlStore) -> None:
    rig = make_tracing_rig(any_store)
    async with rig.run_worker():
        agent = await rig.make_agent()
        reply = await rig.say(agent)
        assert len(await list_traces(rig)) == 1
        page = StepQuery(page=Page(limit=1))
        (step,) = await rig.read(lambda tx: tx.steps.list(ACTOR.organization_id, page))
        await runs.remove(rig.services, ACTOR, reply.run.id)
    assert not await rig.read(lambda tx: tx.traces.list_of_step(ACTOR.organization_id, step.id))


async def test_a_failed_call_is_kept_too(store: SqliteStore) -> None:
    rig = make_tracing_rig(store, status_code=503, error="full", response={})
    rig.model.script = [ModelOverloaded("full")]
    rig.model.otherwise = lambda _: (_ for _ in ()).throw(ModelOverloaded("full"))
    async with rig.run_worker():
        reply = await rig.say(await rig.make_agent())
    assert reply.ended.failure is not None
    traces = [trace for step in await list_traces(rig) for trace in step]
    assert {(trace.status_code, trace.error) for trace in traces} == {(503, "full")}


async def test_a_cancelled_call_is_kept_too(store: SqliteStore) -> None:
    rig = make_tracing_rig(store, error="CancelledError")
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(await rig.make_agent())
        await rig.model.asked.wait()
        await runs.cancel(rig.services, ACTOR, run.id)
    ((trace,),) = await list_traces(rig)
    assert trace.error == "CancelledError"


async def test_an_agents_secrets_are_hidden_and_what_is_too_long_is_cut(
    store: SqliteStore,
) -> None:
    rig = make_tracing_rig(store, request={"a": "the s3cret word"}, response={"b": "x" * 2_000})
    async with rig.run_worker():
        agent = await rig.make_agent()
        secret = Secret(id="agent-env-1", key="WORD", value="s3cret")
        await store.write(lambda tx: tx.agents.set_secrets(agent.id, [secret]))
        await rig.say(agent)
    ((trace,),) = await list_traces(rig)
    assert trace.request == {"a": "the [secret hidden] word"}
    assert trace.response["truncated"] is True
    assert trace.response["size_bytes"] == 2_008
    assert len(trace.response["beginning"]) == 1_000


async def test_nothing_is_kept_unless_asked_for(store: SqliteStore) -> None:
    rig = Rig(store)
    TracingModel(rig)
    async with rig.run_worker():
        await rig.say(await rig.make_agent())
    assert rig.model.questions[0].exchanges is None
    assert await list_traces(rig) == [[]]


@pytest.mark.parametrize("written", ['pa"ss\nwörd', r"pa\"ss\nwörd", r"pa\"ss\nw\u00f6rd"])
def test_a_secret_is_found_however_it_is_written(written: str) -> None:
    value = {f"key {written}": [{"deep": f"say {written}!"}, 1, None, True]}
    hidden = remove_secrets(value, ['pa"ss\nwörd', "no"])
    assert hidden == {"key [secret hidden]": [{"deep": "say [secret hidden]!"}, 1, None, True]}


def test_a_secret_inside_another_hides_no_less_of_it() -> None:
    assert remove_secrets("abcdefgh", ["abcd", "abcdefgh"]) == "[secret hidden]"


def test_what_fits_is_not_cut() -> None:
    assert truncate({"a": "é"}, 10) == {"a": "é"}
    assert truncate({"a": "éé"}, 9)["beginning"] == '{"a":"é'
