"""Requests are measured, and metrics are served over HTTP: only if the operator wants it, and only to those who may read them."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.doubles.model import call_answer, text_answer
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.telemetry.metrics import OBSERVED_METRICS, RECORDED_METRICS
from holdfast.adapters.telemetry.otel import OtelTelemetry
from holdfast.engine.queue_metrics import QueueMetrics
from holdfast.http.app import HttpSettings, build_app
from holdfast.ports.model import TextDelta
from holdfast.usecases import runs

Connect = Callable[[FastAPI], AsyncClient]

SENT_IN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAGE = Path(__file__).parents[2] / "docs" / "watching.md"


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def telemetry(memory: InMemorySpanExporter) -> AsyncIterator[OtelTelemetry]:
    telemetry = OtelTelemetry(spans=[SimpleSpanProcessor(memory)])
    yield telemetry
    await telemetry.aclose()


@pytest.fixture
async def rig(store: SqliteStore, telemetry: OtelTelemetry) -> Rig:
    rig = Rig(store)
    services = rig.services
    rig.services = replace(
        services,
        telemetry=telemetry,
        model=telemetry.instrument_model(services.model),
        toolbox=telemetry.instrument_toolbox(services.toolbox),
    )
    dispatch = QueueDispatch(store, services.bell, rig.lease, telemetry, max_runs=1_000)
    rig.services = replace(rig.services, dispatch=dispatch)
    telemetry.observe_runs(live=lambda: 0)
    telemetry.observe_queue()
    telemetry.observe_tasks(asyncio.get_running_loop())
    return rig


async def test_a_turn_shows_in_all_figures(
    rig: Rig, telemetry: OtelTelemetry, connect: Connect
) -> None:
    app = build_app(rig.services, HttpSettings(telemetry=telemetry, metrics=True))
    rig.model.script = [call_answer(("call_1", "slow")), (TextDelta("Done."), text_answer("Done."))]
    async with rig.run_worker(), connect(app) as client:
        agent = await rig.make_agent("slow")
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        answer = await client.post(f"/v1/agents/{agent.id}/messages", json=body)
        assert answer.status_code == 200, answer.text
        rig.model.gate = asyncio.Event()
        cancelled = await rig.submit(agent)
        await runs.cancel(rig.services, ACTOR, cancelled.id)
        await QueueMetrics(rig.services).sample()
        scraped = await client.get("/metrics")
    assert scraped.headers["content-type"].startswith("text/plain; version=")
    text = scraped.text
    assert 'holdfast_runs_total{status="completed",stop_reason="end_turn"} 1.0' in text
    route = 'http_route="/v1/agents/{agent_id}/messages"'
    assert re.search(rf"http_server_request_duration_seconds_count{{.*{route}.*}} 1\.0", text)
    assert 'gen_ai_token_type="input"' in text
    assert 'holdfast_runs_claimed_total{recovery="false"} 2.0' in text
    # Every name of the page is there, and no other.
    served = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    assert {name for _, name in documented_metrics()} == served


def test_the_page_names_every_figure() -> None:
    assert [name for name, _ in documented_metrics()] == [
        item.name for item in (*RECORDED_METRICS, *OBSERVED_METRICS)
    ]


def documented_metrics() -> list[tuple[str, str]]:
    page = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^\| `([a-z_.]+)` \| `([a-z_]+)` \|", page, re.MULTILINE)


async def test_a_request_goes_on_in_the_callers_trace(
    rig: Rig, telemetry: OtelTelemetry, memory: InMemorySpanExporter, connect: Connect
) -> None:
    app = build_app(rig.services, HttpSettings(telemetry=telemetry))
    async with rig.run_worker(), connect(app) as client:
        agent = await rig.make_agent()
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        path = f"/v1/agents/{agent.id}/messages"
        await client.post(path, json=body, headers={"traceparent": SENT_IN})
        await client.get("/v1/health/")
        missing = await client.get("/v1/nothing/here")
        trace_id = SENT_IN.split("-")[1]
        quiet = build_app(rig.services, HttpSettings())
    async with connect(quiet) as client:
        (step,) = (await client.get("/v1/steps/", params={"trace_ids": [trace_id]})).json()
        assert (await client.get("/v1/steps/", params={"trace_ids": ["other"]})).json() == []
    assert step["trace_id"] == trace_id
    assert missing.status_code == 404
    *ours, request, lost = memory.get_finished_spans()
    assert request.name == "POST /v1/agents/{agent_id}/messages"
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "url.path": path,
        "http.route": "/v1/agents/{agent_id}/messages",
        "http.response.status_code": 200,
    }
    trace_ids = {span.context.trace_id for span in (request, *ours) if span.context}
    assert {f"{trace_id:032x}" for trace_id in trace_ids} == {SENT_IN.split("-")[1]}
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == SENT_IN.split("-")[2]
    # An unknown path is not a label: callers could invent any number of them.
    assert lost.name == "GET"


@pytest.mark.parametrize(
    ("settings", "without", "with_password"),
    [
        (HttpSettings(password="key"), 401, 404),
        (HttpSettings(password="key", metrics=True), 401, 200),
        (HttpSettings(password="key", metrics=True, open_metrics=True), 200, 200),
    ],
)
async def test_figures_are_for_those_who_may_ask(
    rig: Rig,
    telemetry: OtelTelemetry,
    connect: Connect,
    settings: HttpSettings,
    without: int,
    with_password: int,
) -> None:
    app = build_app(rig.services, replace(settings, telemetry=telemetry))
    async with connect(app) as client:
        assert (await client.get("/metrics")).status_code == without
        known = await client.get("/metrics", headers={"authorization": "Bearer key"})
        assert known.status_code == with_password


async def test_without_a_password_figures_are_for_this_machine_unless_opened(
    rig: Rig, telemetry: OtelTelemetry, connect: Connect
) -> None:
    abroad = {"host": "example.org"}
    for is_open, status in ((False, 403), (True, 200)):
        settings = HttpSettings(telemetry=telemetry, metrics=True, open_metrics=is_open)
        async with connect(build_app(rig.services, settings)) as client:
            assert (await client.get("/metrics", headers=abroad)).status_code == status
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.get("/v1/agents/", headers=abroad)).status_code == 403
