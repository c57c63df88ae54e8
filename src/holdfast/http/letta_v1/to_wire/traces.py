"""A run as spans, from its stored steps (wire-v1 §2.8). This also works for runs that were not traced.

The ids are made of the ids of run and steps. Spans that were sent to a collector have the same names, but other ids.
"""

from collections.abc import Iterator, Sequence

from holdfast.core.runs import Run, RunStatus
from holdfast.core.steps import Step, StepStatus
from holdfast.http.letta_v1.schemas.traces import Span
from holdfast.http.letta_v1.to_wire.runs import epoch_ns


def run_spans(run: Run, steps: Sequence[Step]) -> Iterator[Span]:
    trace_id = run.request.trace_id or _digits(run.id)
    root = Span(
        trace_id=trace_id,
        span_id=_span_id(run.id),
        parent_span_id=None,
        name="invoke_agent",
        start_time_unix_nano=epoch_ns(run.created_at),
        duration_ns=run.total_duration_ns,
        status="error" if run.status in (RunStatus.FAILED, RunStatus.CANCELLED) else "ok",
        attributes={
            "gen_ai.agent.id": run.agent_id,
            "gen_ai.conversation.id": run.thread_id,
            "holdfast.run.id": run.id,
            "holdfast.run.stop_reason": run.stop_reason,
        },
    )
    yield root
    for step in steps:
        yield from _step_spans(step, root)


def _step_spans(step: Step, root: Span) -> Iterator[Span]:
    began = epoch_ns(step.created_at)
    status = "error" if step.status in (StepStatus.FAILED, StepStatus.CANCELLED) else "ok"
    span = Span(
        trace_id=root.trace_id,
        span_id=_span_id(step.id),
        parent_span_id=root.span_id,
        name="step",
        start_time_unix_nano=began,
        duration_ns=step.step_ns,
        status=status,
        attributes={"holdfast.step.id": step.id, "holdfast.step.status": step.status},
    )
    yield span
    yield Span(
        trace_id=root.trace_id,
        span_id=_span_id(step.id, 1),
        parent_span_id=span.span_id,
        name=f"chat {step.model.name}",
        start_time_unix_nano=began,
        duration_ns=step.llm_request_ns,
        status=status,
        attributes={
            "gen_ai.request.model": step.model.name,
            "gen_ai.usage.input_tokens": step.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": step.usage.completion_tokens,
        },
    )
    if step.tool_execution_ns is not None:
        yield Span(
            trace_id=root.trace_id,
            span_id=_span_id(step.id, 2),
            parent_span_id=span.span_id,
            name="execute_tool",
            start_time_unix_nano=began + (step.llm_request_ns or 0),
            duration_ns=step.tool_execution_ns,
            status="ok",
            attributes={},
        )


def _digits(entity_id: str) -> str:
    return entity_id.partition("-")[2].replace("-", "")


def _span_id(entity_id: str, number: int = 0) -> str:
    """The last 16 digits of the id, plus ``number`` for the spans within a step."""
    return f"{(int(_digits(entity_id)[-16:], 16) + number) % 2**64:016x}"
