"""Spans by OpenTelemetry's conventions: a request, the run that it started, its steps, their model and tool calls.

Each task has a current span; a span that starts in the task becomes its child.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from holdfast.core.agents import Agent
from holdfast.core.runs import Run, RunStatus, Usage
from holdfast.core.steps import Step, StepStatus

_propagator = TraceContextTextMapPropagator()

_ERROR_STATUSES = (RunStatus.FAILED, RunStatus.CANCELLED)


class RunSpans:
    """The span of the run that this task executes, and the span of its current step."""

    def __init__(self, tracer: Tracer, run: Run, agent: Agent) -> None:
        self._tracer = tracer
        self.run_id = run.id
        parent = parse_trace_parent(run.request.trace_parent)
        self._run = tracer.start_span(
            f"invoke_agent {agent.name}",
            parent,
            attributes=_run_attributes(run, agent),
            links=_run_links(run),
        )
        self._context = trace.set_span_in_context(self._run)
        self._step: Span | None = None
        self._token = contexts.attach(self._context)

    def step_began(self, step: Step) -> None:
        attributes = {"holdfast.step.id": step.id, "gen_ai.request.model": step.model.name}
        self._step = self._tracer.start_span("step", self._context, attributes=attributes)
        contexts.detach(self._token)
        self._token = contexts.attach(trace.set_span_in_context(self._step, self._context))

    def step_ended(self, step: Step) -> None:
        if self._step is None:
            return
        self._step.set_attribute("holdfast.step.status", step.status)
        if step.status is not StepStatus.SUCCESS:
            _mark_failed(self._step, step.failure.kind if step.failure else step.status)
        self._step.end()
        self._step = None

    def run_ended(self, run: Run) -> None:
        self._run.set_attributes({"holdfast.run.status": run.status, **usage_attributes(run.usage)})
        if run.stop_reason is not None:
            self._run.set_attribute("holdfast.run.stop_reason", run.stop_reason)
        if run.status in _ERROR_STATUSES:
            _mark_failed(self._run, run.failure.kind if run.failure else run.status)
        self._close()

    def interrupt(self) -> None:
        """End the spans of a run that is not over, but goes on in another process or later."""
        if self._step is not None:
            _mark_failed(self._step, "interrupted")
            self._step.end()
        _mark_failed(self._run, "interrupted")
        self._close()

    def _close(self) -> None:
        self._run.end()
        contexts.detach(self._token)


def _run_attributes(run: Run, agent: Agent) -> dict[str, AttributeValue]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": agent.id,
        "gen_ai.agent.name": agent.name,
        "gen_ai.conversation.id": run.thread_id,
        "holdfast.run.id": run.id,
        "holdfast.organization.id": run.organization_id,
        "holdfast.run.recoveries": run.progress.recoveries,
    }


def _run_links(run: Run) -> list[Link]:
    """A resumed run is linked to the request, whose own span ended in another process."""
    parent = trace.get_current_span(parse_trace_parent(run.request.trace_parent)).get_span_context()
    return [Link(parent)] if run.progress.recoveries and parent.is_valid else []


def parse_trace_parent(trace_parent: str | None) -> Context:
    """The context that a W3C ``traceparent`` names; an empty one for None."""
    headers = {"traceparent": trace_parent} if trace_parent else {}
    return _propagator.extract(headers, Context())


def current_trace_parent() -> str | None:
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers.get("traceparent")


def usage_attributes(tokens: Usage) -> dict[str, AttributeValue]:
    attributes = {
        "gen_ai.usage.input_tokens": tokens.prompt_tokens,
        "gen_ai.usage.output_tokens": tokens.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": tokens.cached_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": tokens.cache_write_tokens,
        "gen_ai.usage.details.reasoning_tokens": tokens.reasoning_tokens,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _mark_failed(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


@contextmanager
def open_span(
    tracer: Tracer,
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    parent: Context | None = None,
) -> Iterator[Span]:
    """A span around a piece of work. It records the class of an error, not its message, which may contain user data."""
    with tracer.start_as_current_span(
        name,
        parent,
        kind,
        attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            _mark_failed(span, type(error).__name__)
            raise
