"""Telemetry by OpenTelemetry: traces and metrics for a collector, and metrics for Prometheus.

The tracer and meter providers are not registered globally: no library finds them, and nothing is sent but what this
package records. Messages and tool results are sent only if the operator asks for it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from holdfast import __version__
from holdfast.adapters.telemetry import metrics, spans
from holdfast.adapters.telemetry.instrumentation import (
    InstrumentedEmbedder,
    InstrumentedModel,
    InstrumentedToolbox,
)
from holdfast.adapters.telemetry.metrics import Metrics
from holdfast.adapters.telemetry.spans import RunSpans
from holdfast.core.agents import Agent
from holdfast.core.runs import Run, RunStatus
from holdfast.core.steps import Step
from holdfast.ports.embedder import Embedder
from holdfast.ports.model import Model
from holdfast.ports.toolbox import Toolbox

# How long a collector may take to accept data, also when the server stops.
_EXPORT_SECONDS = 3

_current_run: ContextVar[RunSpans | None] = ContextVar("current", default=None)


class OtelTelemetry:
    def __init__(
        self,
        *,
        spans: Sequence[SpanProcessor] = (),
        readers: Sequence[MetricReader] = (),
        with_content: bool = False,
    ) -> None:
        self._registry = CollectorRegistry()
        prometheus = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        resource = _resource()
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        for processor in spans:
            self._traces.add_span_processor(processor)
        self._meters = MeterProvider(
            [prometheus, *readers], resource=resource, shutdown_on_exit=False
        )
        self._tracer = self._traces.get_tracer("holdfast", __version__)
        self._metrics = Metrics(self._meters.get_meter("holdfast", __version__))
        self._with_content = with_content
        self._waiting: int | None = None
        self._oldest_seconds: float | None = None

    @classmethod
    def export_to(cls, endpoint: str | None, *, with_content: bool = False) -> "OtelTelemetry":
        """With exporters to the collector at this address, if there is one."""
        if endpoint is None:
            return cls(with_content=with_content)
        base = endpoint.rstrip("/")
        traces = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=_EXPORT_SECONDS)
        metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=_EXPORT_SECONDS)
        return cls(
            spans=[BatchSpanProcessor(traces)],
            readers=[PeriodicExportingMetricReader(metrics)],
            with_content=with_content,
        )

    async def aclose(self) -> None:
        """Send what has not been sent yet, and stop."""
        shutdowns = (self._traces.shutdown, self._meters.shutdown)
        await asyncio.gather(*(asyncio.to_thread(shutdown) for shutdown in shutdowns))

    def instrument_model(self, model: Model) -> Model:
        return InstrumentedModel(
            model, self._tracer, self._metrics, with_content=self._with_content
        )

    def instrument_embedder(self, embedder: Embedder) -> Embedder:
        return InstrumentedEmbedder(embedder, self._tracer, self._metrics)

    def instrument_toolbox(self, toolbox: Toolbox) -> Toolbox:
        return InstrumentedToolbox(
            toolbox, self._tracer, self._metrics, with_content=self._with_content
        )

    def observe_runs(self, *, live: Callable[[], int]) -> None:
        """Observe the number of live runs whenever metrics are exported."""
        self._metrics.observe(metrics.LIVE, live)

    def observe_queue(self) -> None:
        """Observe what was last measured of the queue whenever metrics are exported."""
        self._metrics.observe(metrics.WAITING, lambda: self._waiting)
        self._metrics.observe(metrics.OLDEST_WAIT, lambda: self._oldest_seconds)

    def observe_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Observe the number of tasks of this loop. One that only grows is a leak."""
        self._metrics.observe(metrics.TASKS, lambda: len(asyncio.all_tasks(loop)))

    # calls by the engine

    def run_claimed(self, *, is_recovery: bool) -> None:
        self._metrics.count(metrics.CLAIMS, recovery="true" if is_recovery else "false")

    def write_fenced(self) -> None:
        self._metrics.count(metrics.FENCED_WRITES)

    def lease_lost(self) -> None:
        self._metrics.count(metrics.LOST_LEASES)

    def queue_measured(self, waiting: int | None, oldest_seconds: float | None) -> None:
        self._waiting, self._oldest_seconds = waiting, oldest_seconds

    def trace_parent(self) -> str | None:
        return spans.current_trace_parent()

    def run_started(self, run: Run, agent: Agent) -> None:
        if run.progress.recoveries:
            self._metrics.count(metrics.RECOVERIES)
        _current_run.set(RunSpans(self._tracer, run, agent))

    def step_started(self, step: Step) -> None:
        current = _current_run.get()
        if current is not None:
            current.step_began(step)

    def step_ended(self, step: Step) -> None:
        self._metrics.count(metrics.STEPS, status=step.status)
        current = _current_run.get()
        if current is not None:
            current.step_ended(step)

    def run_ended(self, run: Run) -> None:
        current = _current_run.get()
        if current is not None and current.run_id == run.id:
            current.run_ended(run)
            _current_run.set(None)
        stop = run.stop_reason
        self._metrics.count(metrics.RUNS, status=run.status, stop_reason=stop)
        seconds = (run.total_duration_ns or 0) / 1e9
        self._metrics.record(metrics.RUN_SECONDS, seconds, status=run.status)
        cancel = run.cancellation
        if run.status is RunStatus.CANCELLED and cancel is not None and run.completed_at:
            waited = (run.completed_at - cancel.requested_at).total_seconds()
            self._metrics.record(metrics.CANCEL_SECONDS, waited)

    def run_released(self) -> None:
        current = _current_run.get()
        if current is not None:
            current.interrupt()
            _current_run.set(None)

    # calls by the HTTP layer

    @contextmanager
    def trace_request(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> Iterator["_Request"]:
        attributes = {"http.request.method": method, "url.path": path}
        parent = spans.parse_trace_parent(headers.get("traceparent"))
        started_at = perf_counter()
        with spans.open_span(self._tracer, method, SpanKind.SERVER, attributes, parent) as span:
            answer = _Request(span, method)
            try:
                yield answer
            finally:
                self._metrics.record(
                    metrics.REQUEST_SECONDS,
                    perf_counter() - started_at,
                    http__request__method=method,
                    http__route=answer.route,
                    http__response__status_code=answer.status,
                )

    def render_metrics(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def _resource() -> Resource:
    """The name and version of the service; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` override and add."""
    known = Resource.create({SERVICE_VERSION: __version__})
    if str(known.attributes.get(SERVICE_NAME)).startswith("unknown_service"):
        return known.merge(Resource({SERVICE_NAME: "holdfast"}))
    return known


class _Request:
    def __init__(self, span: Span, method: str) -> None:
        self._span = span
        self._method = method
        self.status: int | None = None
        self.route: str | None = None

    def set_response(self, status: int, route: str | None) -> None:
        self.status, self.route = status, route
        self._span.set_attribute("http.response.status_code", status)
        if route is not None:
            self._span.set_attribute("http.route", route)
            self._span.update_name(f"{self._method} {route}")
        if status >= 500:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(StatusCode.ERROR)
