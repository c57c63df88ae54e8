"""The metrics of a server and their labels.

Names and buckets follow OpenTelemetry's conventions where there are some. No label has values that callers can choose
freely, except the model.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from opentelemetry.metrics import CallbackOptions, Meter, Observation

# Seconds: from one token to a long tool call.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_FIRST_CHUNK: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48)
_CANCEL: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)


class Metric(Struct, frozen=True):
    name: str
    unit: str
    description: str
    # None: a counter. Else a histogram.
    buckets: tuple[float, ...] | None = None


RUNS: Final = Metric(
    "holdfast.runs", "{run}", "Runs that ended or paused, by status and stop reason."
)
RUN_SECONDS: Final = Metric(
    "holdfast.run.duration", "s", "From the message to the run's end, by status.", _SECONDS
)
STEPS: Final = Metric("holdfast.steps", "{step}", "Steps that are over, by status.")
TOOL_SECONDS: Final = Metric(
    "holdfast.tool.duration", "s", "How long tool calls took, by outcome.", _SECONDS
)
CANCEL_SECONDS: Final = Metric(
    "holdfast.cancel.duration", "s", "From a cancel to the run's end.", _CANCEL
)
TOKENS: Final = Metric(
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens of a model call, by model and by type (input, output).",
    _TOKENS,
)
CALL_SECONDS: Final = Metric(
    "gen_ai.client.operation.duration",
    "s",
    "How long model calls took, by model and, if they failed, by the kind of error.",
    _SECONDS,
)
FIRST_CHUNK_SECONDS: Final = Metric(
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
    "From a model call to the first of its answer, by model.",
    _FIRST_CHUNK,
)
REQUEST_SECONDS: Final = Metric(
    "http.server.request.duration",
    "s",
    "How long requests took, by method, route and status; a stream lasts as long as it is read.",
    _SECONDS,
)
CLAIMS: Final = Metric(
    "holdfast.runs.claimed",
    "{run}",
    "Runs that this process took from the queue, by whether another one had begun them.",
)
RECOVERIES: Final = Metric(
    "holdfast.runs.recovered", "{run}", "Interrupted runs that this process went on with."
)
FENCED_WRITES: Final = Metric(
    "holdfast.writes.fenced",
    "{write}",
    "Writes that were refused because another server has the run.",
)
LOST_LEASES: Final = Metric(
    "holdfast.leases.lost", "{lease}", "How often this process could not renew its lease in time."
)
LIVE: Final = Metric("holdfast.runs.live", "{run}", "Runs that this process carries now.")
WAITING: Final = Metric(
    "holdfast.runs.waiting", "{run}", "Runs in the queue of the deployment now."
)
OLDEST_WAIT: Final = Metric(
    "holdfast.runs.oldest_wait", "s", "How long the oldest run in the queue has waited."
)
TASKS: Final = Metric(
    "holdfast.tasks", "{task}", "Tasks of this process's event loop that are not done yet."
)

RECORDED_METRICS: Final = (
    RUNS,
    RUN_SECONDS,
    STEPS,
    TOOL_SECONDS,
    CANCEL_SECONDS,
    TOKENS,
    CALL_SECONDS,
    FIRST_CHUNK_SECONDS,
    REQUEST_SECONDS,
    CLAIMS,
    RECOVERIES,
    FENCED_WRITES,
    LOST_LEASES,
)
OBSERVED_METRICS: Final = (LIVE, WAITING, OLDEST_WAIT, TASKS)
# These rarely happen. They are exported as zero before they do, or else the first time would not be seen as a change.
_RARE: Final = (RECOVERIES, FENCED_WRITES, LOST_LEASES)

Label = str | int | None


class Metrics:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._counters = {
            metric: meter.create_counter(metric.name, metric.unit, metric.description)
            for metric in RECORDED_METRICS
            if metric.buckets is None
        }
        self._histograms = {
            metric: meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=metric.buckets,
            )
            for metric in RECORDED_METRICS
            if metric.buckets is not None
        }

        for metric in _RARE:
            self._counters[metric].add(0)

    def count(self, metric: Metric, **labels: Label) -> None:
        self._counters[metric].add(1, _attributes(labels))

    def record(self, metric: Metric, value: float, **labels: Label) -> None:
        self._histograms[metric].record(value, _attributes(labels))

    def observe(self, metric: Metric, read: Callable[[], float | None]) -> None:
        """Call ``read`` whenever the metric is exported; the call comes from another thread. None: nothing is exported."""

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            value = read()
            return [] if value is None else [Observation(value)]

        self._meter.create_observable_gauge(
            metric.name, [observe], unit=metric.unit, description=metric.description
        )


def _attributes(labels: dict[str, Label]) -> dict[str, str | int]:
    """The labels by the names of the conventions, in which a dot stands for our double underscore."""
    return {name.replace("__", "."): value for name, value in labels.items() if value is not None}
