"""What is told to those who watch: the tree of spans of a run and its figures, whatever becomes of it."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.doubles.embedder import HANDLE, WordEmbedder
from tests.doubles.model import call_answer, text_answer
from tests.doubles.unreliable_store import UnreliableStore, with_faults
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.waiting import eventually

from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.telemetry.factory import open_telemetry
from holdfast.adapters.telemetry.otel import OtelTelemetry
from holdfast.core.messages import Role, Text
from holdfast.core.runs import Run, RunStatus
from holdfast.core.tool_rules import RequiresApproval
from holdfast.engine import recovery
from holdfast.engine.checkpoint import Checkpoints
from holdfast.engine.queue_metrics import QueueMetrics
from holdfast.errors import (
    ContextWindowExceeded,
    ModelOverloaded,
    ModelRejectedRequest,
    SettingInvalid,
)
from holdfast.ports.bell import RUNS
from holdfast.ports.model import TextDelta
from holdfast.ports.store import QueueDepth
from holdfast.usecases import agent_context, messages, runs
from holdfast.usecases.messages import MessageInput, NewSend

SENT_IN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


class InstrumentedRig:
    """A rig whose telemetry is kept in memory."""

    def __init__(self, store: SqliteStore, *, with_content: bool = False) -> None:
        self.memory = InMemorySpanExporter()
        self.telemetry = OtelTelemetry(
            spans=[SimpleSpanProcessor(self.memory)], with_content=with_content
        )
        self.rig = Rig(store)
        services = self.rig.services
        self.rig.services = replace(
            services,
            telemetry=self.telemetry,
            model=self.telemetry.instrument_model(services.model),
            toolbox=self.telemetry.instrument_toolbox(services.toolbox),
            dispatch=QueueDispatch(
                store, services.bell, self.rig.lease, self.telemetry, max_runs=1_000
            ),
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they began."""
        return sorted(self.memory.get_finished_spans(), key=lambda span: span.start_time or 0)

    def tree(self) -> list[tuple[str, str | None]]:
        """Each span's name and its parent's."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        return [
            (span.name, names.get(span.parent.span_id) if span.parent else None)
            for span in self.spans
        ]

    def find_span(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def span_attributes(self, name: str) -> dict[str, object]:
        (span,) = self.find_span(name)
        return dict(span.attributes or {})

    def all_attributes(self) -> str:
        return "".join(span.to_json() for span in self.spans)

    def metrics(self) -> dict[str, float]:
        text = self.telemetry.render_metrics()[0].decode()
        pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}


@pytest.fixture
def instrumented(store: SqliteStore) -> InstrumentedRig:
    return InstrumentedRig(store)


async def test_a_run_is_a_tree_of_spans(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "slow")), (TextDelta("Done."), text_answer("Done."))]
    async with rig.run_worker():
        agent = await rig.make_agent("slow")
        reply = await rig.say(agent)
    run = "invoke_agent tester"
    assert instrumented.tree() == [
        (run, None),
        ("step", run),
        ("chat guide", "step"),
        ("execute_tool slow", "step"),
        ("step", run),
        ("chat guide", "step"),
    ]
    told = instrumented.span_attributes(run)
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.agent.id"] == agent.id
    assert told["gen_ai.conversation.id"] == agent.id
    assert told["holdfast.run.id"] == reply.run.id
    assert (told["holdfast.run.status"], told["holdfast.run.stop_reason"]) == (
        "completed",
        "end_turn",
    )
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (20, 10)
    chat = instrumented.find_span("chat guide")[1]
    assert chat.kind is SpanKind.CLIENT
    asked = dict(chat.attributes or {})
    assert asked.pop("gen_ai.client.operation.time_to_first_chunk")
    assert asked == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "holdfast",
        "gen_ai.request.model": "guide",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    assert instrumented.span_attributes("execute_tool slow") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "slow",
        "gen_ai.tool.call.id": "call_1",
        "holdfast.tool.outcome": "finished",
    }
    assert {span.status.status_code for span in instrumented.spans} == {StatusCode.UNSET}


async def test_tools_that_run_side_by_side_are_siblings(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "fast_a"), ("call_2", "fast_b")), text_answer()]
    async with rig.run_worker():
        await rig.say(await rig.make_agent("fast_a", "fast_b"))
    parents = {
        span.parent.span_id
        for span in instrumented.spans
        if span.parent and span.name.startswith("execute_tool")
    }
    assert len(parents) == 1
    assert (
        len(
            instrumented.find_span("execute_tool fast_a")
            + instrumented.find_span("execute_tool fast_b")
        )
        == 2
    )


async def test_a_failed_call_shows_in_all_that_it_was_part_of(
    instrumented: InstrumentedRig,
) -> None:
    rig = instrumented.rig
    rig.model.script = [ModelRejectedRequest("Your words were: private words.")]
    async with rig.run_worker():
        await rig.say(await rig.make_agent())
    kinds = [span.attributes and span.attributes["error.type"] for span in instrumented.spans]
    assert kinds == [
        ModelRejectedRequest.kind,
        ModelRejectedRequest.kind,
        "ModelRejectedRequest",
    ]
    assert {span.status.status_code for span in instrumented.spans} == {StatusCode.ERROR}
    assert "private words" not in instrumented.all_attributes()
    figures = instrumented.metrics()
    assert figures['holdfast_runs_total{status="failed",stop_reason="llm_api_error"}'] == 1
    assert figures['holdfast_steps_total{status="failed"}'] == 1


async def test_a_step_that_failed_shows_so_though_its_run_went_on(
    instrumented: InstrumentedRig,
) -> None:
    rig = instrumented.rig
    async with rig.run_worker():
        agent = await rig.make_agent()
        for _ in range(3):
            await rig.say(agent)
        instrumented.memory.clear()
        rig.model.script = [ContextWindowExceeded("too long")]
        reply = await rig.say(agent)
    assert reply.ended.failure is None
    steps = [dict(span.attributes or {}) for span in instrumented.find_span("step")]
    assert [step["holdfast.step.status"] for step in steps] == ["failed", "success", "success"]
    assert steps[0]["error.type"] == ContextWindowExceeded.kind
    assert instrumented.metrics()['holdfast_steps_total{status="failed"}'] == 1


async def test_a_cancelled_run_shows_where_it_was_stopped(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        agent = await rig.make_agent()
        run, queued = await rig.submit(agent), await rig.submit(agent)
        await rig.model.asked.wait()
        await runs.cancel(rig.services, ACTOR, queued.id)
        await runs.cancel(rig.services, ACTOR, run.id)
    kinds = [span.attributes and span.attributes["error.type"] for span in instrumented.spans]
    assert kinds == ["cancelled", "cancelled", "CancelledError"]
    figures = instrumented.metrics()
    # The queued one too, although nobody carried it.
    assert figures['holdfast_runs_total{status="cancelled",stop_reason="cancelled"}'] == 2
    assert figures["holdfast_cancel_duration_seconds_count"] == 2
    assert figures['holdfast_steps_total{status="cancelled"}'] == 1


@pytest.mark.parametrize("while_asking", [False, True])
async def test_a_run_that_is_given_up_is_counted_and_so_are_its_steps(
    instrumented: InstrumentedRig, monkeypatch: pytest.MonkeyPatch, while_asking: bool
) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "slow"))]
    rig.toolbox.gate = asyncio.Event()
    if while_asking:
        rig.model.gate = asyncio.Event()

    def raise_error(*_: object, **__: object) -> None:
        raise ValueError("TEST: a bug")

    async with rig.run_worker():
        run = await rig.submit(await rig.make_agent("slow"))
        await (rig.model.asked if while_asking else rig.toolbox.running).wait()
        monkeypatch.setattr(Checkpoints, "save", raise_error)
        monkeypatch.setattr(recovery, "load_state", raise_error)
        rig.model.gate.set()
        rig.toolbox.gate.set()
        ended = await rig.wait_for_end(run)
    assert ended.failure is not None
    figures = instrumented.metrics()
    assert figures['holdfast_runs_total{status="failed",stop_reason="error"}'] == 1
    assert figures['holdfast_run_duration_seconds_count{status="failed"}'] == 1
    step = "failed" if while_asking else "success"
    counted = {name: number for name, number in figures.items() if "steps_total" in name}
    assert counted == {f'holdfast_steps_total{{status="{step}"}}': 1}


async def test_a_run_that_a_reset_ends_is_counted(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "held"))]
    async with rig.run_worker():
        agent = await rig.make_agent("held", rules=(RequiresApproval(tool_name="held"),))
        await rig.say(agent)
        await agent_context.reset(rig.services, ACTOR, agent.id)
    figures = instrumented.metrics()
    assert figures['holdfast_runs_total{status="paused",stop_reason="requires_approval"}'] == 1
    assert figures['holdfast_runs_total{status="cancelled",stop_reason="cancelled"}'] == 1


async def test_a_killed_tool_is_measured_as_such(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "slow"))]
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(await rig.make_agent("slow"))
        await rig.toolbox.running.wait()
        await runs.cancel(rig.services, ACTOR, run.id)
    assert instrumented.span_attributes("execute_tool slow")["error.type"] == "CancelledError"
    assert instrumented.metrics()['holdfast_tool_duration_seconds_count{outcome="killed"}'] == 1


async def test_a_tool_that_broke_was_not_killed(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "slow"))]
    rig.toolbox.faults["slow"] = ValueError("TEST: a bug")
    async with rig.run_worker():
        await rig.say(await rig.make_agent("slow"))
    assert instrumented.span_attributes("execute_tool slow")["error.type"] == "ValueError"
    measured = {name for name in instrumented.metrics() if "tool_duration_seconds_count" in name}
    assert measured == {'holdfast_tool_duration_seconds_count{outcome="unknown"}'}


async def test_message_text_is_not_exported(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "slow")), text_answer("Their answer.")]
    async with rig.run_worker():
        await rig.say(await rig.make_agent("slow"), "My words.")
    assert len(instrumented.spans) == 6
    for words in ("My words", "Their answer", "You are a test", "done"):
        assert words not in instrumented.all_attributes()


async def test_message_text_is_exported_if_the_operator_wants_it(store: SqliteStore) -> None:
    instrumented = InstrumentedRig(store, with_content=True)
    rig = instrumented.rig
    rig.model.script = [call_answer(("call_1", "slow")), text_answer("Their answer.")]
    async with rig.run_worker():
        await rig.say(await rig.make_agent("slow"), "My words.")
    last = dict(instrumented.find_span("chat guide")[1].attributes or {})
    assert last["gen_ai.input.messages"] == (
        '[{"role":"system","parts":[{"type":"text","content":"You are a test."}]},'
        '{"role":"user","parts":[{"type":"text","content":"My words."}]},'
        '{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"slow","arguments":"{}"}]},'
        '{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":[{"type":"text","content":"done"}]}]}]'
    )
    assert last["gen_ai.output.messages"] == (
        '[{"role":"assistant","parts":[{"type":"text","content":"Their answer."}],"finish_reason":"stop"}]'
    )
    tool = instrumented.span_attributes("execute_tool slow")
    assert tool["gen_ai.tool.call.arguments"] == "{}"
    assert tool["gen_ai.tool.call.result"] == '[{"type":"text","content":"done"}]'


async def send(instrumented: InstrumentedRig, agent_id: str) -> Run:
    """As a request does whose caller is in a trace already."""
    item = MessageInput(role=Role.USER, content=(Text("Hi"),))
    with instrumented.telemetry.trace_request("POST", "/v1/x", {"traceparent": SENT_IN}):
        new = NewSend(agent_id=agent_id, input=(item,))
        return await messages.send(instrumented.rig.services, ACTOR, new)


async def test_a_run_is_part_of_the_trace_in_which_it_was_sent(
    instrumented: InstrumentedRig,
) -> None:
    rig = instrumented.rig
    async with rig.run_worker():
        run = await send(instrumented, (await rig.make_agent()).id)
        await rig.wait_for_end(run)
    assert {span.context.trace_id for span in instrumented.spans if span.context} == {TRACE_ID}
    assert instrumented.tree()[:2] == [("POST", None), ("invoke_agent tester", "POST")]
    assert run.request.trace_id == f"{TRACE_ID:032x}"


async def test_a_run_that_is_taken_up_again_goes_on_in_its_trace(store: SqliteStore) -> None:
    first, second = InstrumentedRig(store), InstrumentedRig(store)
    first.rig.model.gate = asyncio.Event()
    async with first.rig.run_worker():
        run = await send(first, (await first.rig.make_agent()).id)
        await first.rig.model.asked.wait()
    async with second.rig.run_worker():
        await second.rig.wait_for_end(run)
    # What the first process did ended with it.
    assert first.span_attributes("invoke_agent tester")["error.type"] == "interrupted"
    (again,) = second.find_span("invoke_agent tester")
    assert again.context is not None
    assert again.context.trace_id == TRACE_ID
    (request,) = first.find_span("POST")
    assert request.context is not None
    assert [link.context.span_id for link in again.links] == [request.context.span_id]
    assert second.span_attributes("invoke_agent tester")["holdfast.run.recoveries"] == 1
    # The step that nobody could finish is over too.
    counted = {name: count for name, count in second.metrics().items() if "steps_total" in name}
    assert counted == {
        'holdfast_steps_total{status="failed"}': 1,
        'holdfast_steps_total{status="success"}': 1,
    }


RECOVERED = "holdfast_runs_recovered_total"
FENCED = "holdfast_writes_fenced_total"
LOST = "holdfast_leases_lost_total"


async def test_a_run_that_is_claimed_again_is_counted_as_fenced_and_as_recovered(
    instrumented: InstrumentedRig,
) -> None:
    rig = instrumented.rig
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(await rig.make_agent())
        await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        before = instrumented.metrics()
        # As others do with the runs of a server whose lease has expired.
        released = await rig.services.store.write(
            lambda tx: tx.queue.release(rig.lease.server_id or "")
        )
        rig.model.gate.set()
        await eventually(lambda: instrumented.metrics()[FENCED] == 1)
        rig.services.bell.ring(RUNS)
        ended = await rig.wait_for_end(run)

    assert (released, ended.status) == (1, RunStatus.COMPLETED)
    assert (before[RECOVERED], before[FENCED], before[LOST]) == (0, 0, 0)
    figures = instrumented.metrics()
    assert (figures[RECOVERED], figures[FENCED], figures[LOST]) == (1, 1, 0)
    assert figures['holdfast_runs_claimed_total{recovery="false"}'] == 1
    assert figures['holdfast_runs_claimed_total{recovery="true"}'] == 1


async def test_a_lease_that_was_lost_is_counted(
    instrumented: InstrumentedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = instrumented.rig
    lost, registered = asyncio.Event(), asyncio.Event()

    async def wait_until_lost() -> None:
        await lost.wait()
        lost.clear()

    async def register() -> None:
        registered.set()

    async with rig.run_worker():
        await rig.say(await rig.make_agent())
    monkeypatch.setattr(rig.lease, "wait_until_lost", wait_until_lost)
    monkeypatch.setattr(rig.lease, "register", register)
    async with rig.run_worker():
        lost.set()
        await asyncio.wait_for(registered.wait(), WAIT_SECONDS)

    assert instrumented.metrics()[LOST] == 1


async def test_the_queue_is_measured_and_unknown_while_that_fails(
    instrumented: InstrumentedRig, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, unreliable = instrumented.rig, UnreliableStore(store)
    instrumented.telemetry.observe_queue()
    rig.services = replace(rig.services, store=unreliable)
    queue = QueueMetrics(rig.services)
    agent = await rig.make_agent()

    assert "holdfast_runs_waiting" not in instrumented.metrics()
    await queue.sample()
    empty = instrumented.metrics()
    for _ in range(3):
        await rig.submit(agent)
    await queue.sample()
    waiting = instrumented.metrics()
    unreliable.failures = 1
    with with_faults():
        await queue.sample()

    unknown = instrumented.metrics()
    await queue.sample()
    assert instrumented.metrics()["holdfast_runs_waiting"] == 3
    monkeypatch.setattr(QueueDepth, "oldest_seconds", None)
    await queue.sample()

    assert (empty["holdfast_runs_waiting"], empty["holdfast_runs_oldest_wait_seconds"]) == (0, 0)
    assert waiting["holdfast_runs_waiting"] == 3
    assert waiting["holdfast_runs_oldest_wait_seconds"] > 0
    assert "holdfast_runs_waiting" not in unknown
    assert "holdfast_runs_waiting" not in instrumented.metrics()


async def test_runs_at_once_do_not_mix(instrumented: InstrumentedRig) -> None:
    rig = instrumented.rig
    async with rig.run_worker():
        agents = [await rig.make_agent() for _ in range(5)]
        replies = await asyncio.gather(*(rig.say(agent) for agent in agents))
    assert len(replies) == 5
    assert len({span.context.trace_id for span in instrumented.spans if span.context}) == 5
    assert len(instrumented.spans) == 15


@pytest.mark.slow
async def test_an_unreachable_collector_delays_nothing() -> None:
    telemetry = OtelTelemetry.export_to("http://127.0.0.1:1")
    with telemetry.trace_request("GET", "/v1/x", {}) as request:
        request.set_response(200, "/v1/x")
    async with asyncio.timeout(WAIT_SECONDS):
        await telemetry.aclose()


@pytest.mark.slow
def test_opentelemetry_is_not_loaded_without_an_exporter() -> None:
    program = (
        "import sys, holdfast.assembly; from holdfast.adapters.telemetry import factory;"
        "assert factory.open_telemetry(None, metrics=False, with_content=False) is None;"
        "print([name for name in ('opentelemetry.sdk', 'prometheus_client') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert finished.stdout.strip() == "[]"


def test_without_the_extra_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What an import meets where nothing is installed.
    monkeypatch.setitem(sys.modules, "holdfast.adapters.telemetry.otel", None)
    with pytest.raises(SettingInvalid, match=r"pip install 'holdfast\[otel\]'"):
        open_telemetry(None, metrics=True, with_content=False)


async def test_vectors_have_a_span_and_count_their_tokens(instrumented: InstrumentedRig) -> None:
    embedder = WordEmbedder("google_ai/gemini-embedding-001")
    observed = instrumented.telemetry.instrument_embedder(embedder)
    assert observed.is_configured("google_ai/gemini-embedding-001")
    await observed.embed("google_ai/gemini-embedding-001", ["My words.", "Their words."])
    name = "embeddings gemini-embedding-001"
    assert instrumented.span_attributes(name) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-embedding-001",
        "gen_ai.usage.input_tokens": 2,
        "holdfast.embeddings.texts": 2,
    }
    assert "words" not in instrumented.all_attributes()
    tokens = {
        series: value
        for series, value in instrumented.metrics().items()
        if series.startswith("gen_ai_client_token_usage_sum")
    }
    (series,) = tokens
    assert 'gen_ai_operation_name="embeddings"' in series
    assert tokens[series] == 2


async def test_vectors_that_fail_are_counted_as_failed(instrumented: InstrumentedRig) -> None:
    embedder = WordEmbedder()
    embedder.failures.append(ModelOverloaded("Their secret."))
    observed = instrumented.telemetry.instrument_embedder(embedder)
    with pytest.raises(ModelOverloaded):
        await observed.embed(HANDLE, ["text"])
    assert instrumented.span_attributes("embeddings words")["error.type"] == "ModelOverloaded"
    assert "secret" not in instrumented.all_attributes()
