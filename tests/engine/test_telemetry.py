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
from tests.doubles.model import call_answer, text_answer
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.telemetry.factory import open_telemetry
from holdfast.adapters.telemetry.otel import OtelTelemetry
from holdfast.core.messages import Role, Text
from holdfast.core.runs import Run
from holdfast.core.tool_rules import RequiresApproval
from holdfast.engine import recovery
from holdfast.engine.checkpoint import Checkpoints
from holdfast.errors import ContextWindowExceeded, ModelRejectedRequest, SettingInvalid
from holdfast.ports.model import TextDelta
from holdfast.usecases import agent_context, messages, runs
from holdfast.usecases.messages import MessageInput, NewSend

SENT_IN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


class Watched:
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

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def told(self, name: str) -> dict[str, object]:
        (span,) = self.named(name)
        return dict(span.attributes or {})

    def everything(self) -> str:
        return "".join(span.to_json() for span in self.spans)

    def figures(self) -> dict[str, float]:
        text = self.telemetry.render_metrics()[0].decode()
        pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}


@pytest.fixture
def watched(store: SqliteStore) -> Watched:
    return Watched(store)


async def test_a_run_is_a_tree_of_spans(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "slow")), (TextDelta("Done."), text_answer("Done."))]
    async with rig.working():
        agent = await rig.make_agent("slow")
        reply = await rig.say(agent)
    run = "invoke_agent tester"
    assert watched.tree() == [
        (run, None),
        ("step", run),
        ("chat guide", "step"),
        ("execute_tool slow", "step"),
        ("step", run),
        ("chat guide", "step"),
    ]
    told = watched.told(run)
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.agent.id"] == agent.id
    assert told["gen_ai.conversation.id"] == agent.id
    assert told["holdfast.run.id"] == reply.run.id
    assert (told["holdfast.run.status"], told["holdfast.run.stop_reason"]) == (
        "completed",
        "end_turn",
    )
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (20, 10)
    chat = watched.named("chat guide")[1]
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
    assert watched.told("execute_tool slow") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "slow",
        "gen_ai.tool.call.id": "call_1",
        "holdfast.tool.outcome": "finished",
    }
    assert {span.status.status_code for span in watched.spans} == {StatusCode.UNSET}


async def test_tools_that_run_side_by_side_are_siblings(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "fast_a"), ("call_2", "fast_b")), text_answer()]
    async with rig.working():
        await rig.say(await rig.make_agent("fast_a", "fast_b"))
    parents = {
        span.parent.span_id
        for span in watched.spans
        if span.parent and span.name.startswith("execute_tool")
    }
    assert len(parents) == 1
    assert len(watched.named("execute_tool fast_a") + watched.named("execute_tool fast_b")) == 2


async def test_a_failed_call_shows_in_all_that_it_was_part_of(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [ModelRejectedRequest("Your words were: private words.")]
    async with rig.working():
        await rig.say(await rig.make_agent())
    kinds = [span.attributes and span.attributes["error.type"] for span in watched.spans]
    assert kinds == [
        ModelRejectedRequest.kind,
        ModelRejectedRequest.kind,
        "ModelRejectedRequest",
    ]
    assert {span.status.status_code for span in watched.spans} == {StatusCode.ERROR}
    assert "private words" not in watched.everything()
    figures = watched.figures()
    assert figures['holdfast_runs_total{status="failed",stop_reason="llm_api_error"}'] == 1
    assert figures['holdfast_steps_total{status="failed"}'] == 1


async def test_a_step_that_failed_shows_so_though_its_run_went_on(watched: Watched) -> None:
    rig = watched.rig
    async with rig.working():
        agent = await rig.make_agent()
        for _ in range(3):
            await rig.say(agent)
        watched.memory.clear()
        rig.model.script = [ContextWindowExceeded("too long")]
        reply = await rig.say(agent)
    assert reply.ended.failure is None
    steps = [dict(span.attributes or {}) for span in watched.named("step")]
    assert [step["holdfast.step.status"] for step in steps] == ["failed", "success", "success"]
    assert steps[0]["error.type"] == ContextWindowExceeded.kind
    assert watched.figures()['holdfast_steps_total{status="failed"}'] == 1


async def test_a_cancelled_run_shows_where_it_was_stopped(watched: Watched) -> None:
    rig = watched.rig
    rig.model.gate = asyncio.Event()
    async with rig.working():
        agent = await rig.make_agent()
        run, queued = await rig.submit(agent), await rig.submit(agent)
        await rig.model.asked.wait()
        await runs.cancel(rig.services, ACTOR, queued.id)
        await runs.cancel(rig.services, ACTOR, run.id)
    kinds = [span.attributes and span.attributes["error.type"] for span in watched.spans]
    assert kinds == ["cancelled", "cancelled", "CancelledError"]
    figures = watched.figures()
    # The queued one too, although nobody carried it.
    assert figures['holdfast_runs_total{status="cancelled",stop_reason="cancelled"}'] == 2
    assert figures["holdfast_cancel_duration_seconds_count"] == 2
    assert figures['holdfast_steps_total{status="cancelled"}'] == 1


@pytest.mark.parametrize("while_asking", [False, True])
async def test_a_run_that_is_given_up_is_counted_and_so_are_its_steps(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, while_asking: bool
) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "slow"))]
    rig.toolbox.gate = asyncio.Event()
    if while_asking:
        rig.model.gate = asyncio.Event()

    def broken(*_: object, **__: object) -> None:
        raise ValueError("TEST: a bug")

    async with rig.working():
        run = await rig.submit(await rig.make_agent("slow"))
        await (rig.model.asked if while_asking else rig.toolbox.running).wait()
        monkeypatch.setattr(Checkpoints, "save", broken)
        monkeypatch.setattr(recovery, "load_state", broken)
        rig.model.gate.set()
        rig.toolbox.gate.set()
        ended = await rig.ended(run)
    assert ended.failure is not None
    figures = watched.figures()
    assert figures['holdfast_runs_total{status="failed",stop_reason="error"}'] == 1
    assert figures['holdfast_run_duration_seconds_count{status="failed"}'] == 1
    step = "failed" if while_asking else "success"
    counted = {name: number for name, number in figures.items() if "steps_total" in name}
    assert counted == {f'holdfast_steps_total{{status="{step}"}}': 1}


async def test_a_run_that_a_reset_ends_is_counted(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "held"))]
    async with rig.working():
        agent = await rig.make_agent("held", rules=(RequiresApproval(tool_name="held"),))
        await rig.say(agent)
        await agent_context.reset(rig.services, ACTOR, agent.id)
    figures = watched.figures()
    assert figures['holdfast_runs_total{status="paused",stop_reason="requires_approval"}'] == 1
    assert figures['holdfast_runs_total{status="cancelled",stop_reason="cancelled"}'] == 1


async def test_a_killed_tool_is_measured_as_such(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "slow"))]
    rig.toolbox.gate = asyncio.Event()
    async with rig.working():
        run = await rig.submit(await rig.make_agent("slow"))
        await rig.toolbox.running.wait()
        await runs.cancel(rig.services, ACTOR, run.id)
    assert watched.told("execute_tool slow")["error.type"] == "CancelledError"
    assert watched.figures()['holdfast_tool_duration_seconds_count{outcome="killed"}'] == 1


async def test_a_tool_that_broke_was_not_killed(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "slow"))]
    rig.toolbox.faults["slow"] = ValueError("TEST: a bug")
    async with rig.working():
        await rig.say(await rig.make_agent("slow"))
    assert watched.told("execute_tool slow")["error.type"] == "ValueError"
    measured = {name for name in watched.figures() if "tool_duration_seconds_count" in name}
    assert measured == {'holdfast_tool_duration_seconds_count{outcome="unknown"}'}


async def test_what_was_said_stays_here(watched: Watched) -> None:
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "slow")), text_answer("Their answer.")]
    async with rig.working():
        await rig.say(await rig.make_agent("slow"), "My words.")
    assert len(watched.spans) == 6
    for words in ("My words", "Their answer", "You are a test", "done"):
        assert words not in watched.everything()


async def test_what_was_said_goes_out_if_the_operator_wants_it(store: SqliteStore) -> None:
    watched = Watched(store, with_content=True)
    rig = watched.rig
    rig.model.script = [call_answer(("call_1", "slow")), text_answer("Their answer.")]
    async with rig.working():
        await rig.say(await rig.make_agent("slow"), "My words.")
    last = dict(watched.named("chat guide")[1].attributes or {})
    assert last["gen_ai.input.messages"] == (
        '[{"role":"system","parts":[{"type":"text","content":"You are a test."}]},'
        '{"role":"user","parts":[{"type":"text","content":"My words."}]},'
        '{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"slow","arguments":"{}"}]},'
        '{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":[{"type":"text","content":"done"}]}]}]'
    )
    assert last["gen_ai.output.messages"] == (
        '[{"role":"assistant","parts":[{"type":"text","content":"Their answer."}],"finish_reason":"stop"}]'
    )
    tool = watched.told("execute_tool slow")
    assert tool["gen_ai.tool.call.arguments"] == "{}"
    assert tool["gen_ai.tool.call.result"] == '[{"type":"text","content":"done"}]'


async def send(watched: Watched, agent_id: str) -> Run:
    """As a request does whose caller is in a trace already."""
    item = MessageInput(role=Role.USER, content=(Text("Hi"),))
    with watched.telemetry.trace_request("POST", "/v1/x", {"traceparent": SENT_IN}):
        new = NewSend(agent_id=agent_id, input=(item,))
        return await messages.send(watched.rig.services, ACTOR, new)


async def test_a_run_is_part_of_the_trace_in_which_it_was_sent(watched: Watched) -> None:
    rig = watched.rig
    async with rig.working():
        run = await send(watched, (await rig.make_agent()).id)
        await rig.ended(run)
    assert {span.context.trace_id for span in watched.spans if span.context} == {TRACE_ID}
    assert watched.tree()[:2] == [("POST", None), ("invoke_agent tester", "POST")]
    assert run.request.trace_id == f"{TRACE_ID:032x}"


async def test_a_run_that_is_taken_up_again_goes_on_in_its_trace(store: SqliteStore) -> None:
    first, second = Watched(store), Watched(store)
    first.rig.model.gate = asyncio.Event()
    async with first.rig.working():
        run = await send(first, (await first.rig.make_agent()).id)
        await first.rig.model.asked.wait()
    async with second.rig.working():
        await second.rig.ended(run)
    # What the first process did ended with it.
    assert first.told("invoke_agent tester")["error.type"] == "interrupted"
    (again,) = second.named("invoke_agent tester")
    assert again.context is not None
    assert again.context.trace_id == TRACE_ID
    (request,) = first.named("POST")
    assert request.context is not None
    assert [link.context.span_id for link in again.links] == [request.context.span_id]
    assert second.told("invoke_agent tester")["holdfast.run.recoveries"] == 1
    # The step that nobody could finish is over too.
    counted = {name: count for name, count in second.figures().items() if "steps_total" in name}
    assert counted == {
        'holdfast_steps_total{status="failed"}': 1,
        'holdfast_steps_total{status="success"}': 1,
    }


async def test_runs_at_once_do_not_mix(watched: Watched) -> None:
    rig = watched.rig
    async with rig.working():
        agents = [await rig.make_agent() for _ in range(5)]
        replies = await asyncio.gather(*(rig.say(agent) for agent in agents))
    assert len(replies) == 5
    assert len({span.context.trace_id for span in watched.spans if span.context}) == 5
    assert len(watched.spans) == 15


@pytest.mark.slow
async def test_a_collector_that_is_not_there_holds_nobody_up() -> None:
    telemetry = OtelTelemetry.export_to("http://127.0.0.1:1")
    with telemetry.trace_request("GET", "/v1/x", {}) as request:
        request.set_response(200, "/v1/x")
    async with asyncio.timeout(WAIT_SECONDS):
        await telemetry.aclose()


@pytest.mark.slow
def test_nothing_of_it_is_loaded_where_nobody_watches() -> None:
    program = (
        "import sys, holdfast.assembly; from holdfast.adapters.telemetry import factory;"
        "assert factory.open_telemetry(None, metrics=False, with_content=False) is None;"
        "print([name for name in ('opentelemetry.sdk', 'prometheus_client') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert finished.stdout.strip() == "[]"


def test_without_the_extra_the_operator_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What an import meets where nothing is installed.
    monkeypatch.setitem(sys.modules, "holdfast.adapters.telemetry.otel", None)
    with pytest.raises(SettingInvalid, match=r"pip install 'holdfast\[otel\]'"):
        open_telemetry(None, metrics=True, with_content=False)
