"""Telemetry: spans and metrics of what the server does. Log lines are separate (``holdfast.logs``).

Every call reports a fact. No call waits, fails or changes anything, and none is made per token.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from holdfast.core.agents import Agent
from holdfast.core.runs import Run
from holdfast.core.steps import Step


class Telemetry(Protocol):
    def trace_parent(self) -> str | None:
        """Return the current span of this task as W3C ``traceparent``, to continue the trace elsewhere or later."""
        ...

    def run_started(self, run: Run, agent: Agent) -> None:
        """This task executes the run from now on, until ``run_ended`` or ``run_released``. A run that was interrupted
        starts again, in the trace of its request."""
        ...

    def step_started(self, step: Step) -> None:
        """The run of this task started a step."""
        ...

    def step_ended(self, step: Step) -> None:
        """A step ended with its status. It may have been started by another process."""
        ...

    def run_ended(self, run: Run) -> None:
        """A run ended or waits for a person: the run of this task, or one that no task executes."""
        ...

    def run_claimed(self, *, is_recovery: bool) -> None:
        """This server claimed a run. A recovery goes on with one that another server, or an earlier start, had begun."""
        ...

    def write_fenced(self) -> None:
        """A run was not written because it had been claimed again."""
        ...

    def lease_lost(self) -> None:
        """This server could not renew its lease in time and stopped its runs."""
        ...

    def queue_measured(self, waiting: int | None, oldest_seconds: float | None) -> None:
        """So many runs of the deployment wait in the queue, and the oldest has waited so long: 0 if none waits, None if
        it is not known."""
        ...

    def run_released(self) -> None:
        """This task no longer executes its run, which has not ended: another task or the next start continues it."""
        ...


class RequestSpan(Protocol):
    def set_response(self, status: int, route: str | None) -> None:
        """Record that the response starts. ``route`` is the pattern of the path, if one matched."""
        ...


class RequestTelemetry(Protocol):
    """Telemetry of HTTP requests to this server."""

    def trace_request(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[RequestSpan]:
        """Open a span around the handling of a request. It continues the trace that the ``traceparent`` header names."""
        ...

    def render_metrics(self) -> tuple[bytes, str]:
        """Return all metrics in the Prometheus text format, and its media type. Blocks."""
        ...


class NullTelemetry:
    """Telemetry that records nothing."""

    def trace_parent(self) -> str | None:
        return None

    def run_started(self, run: Run, agent: Agent) -> None: ...

    def step_started(self, step: Step) -> None: ...

    def step_ended(self, step: Step) -> None: ...

    def run_ended(self, run: Run) -> None: ...

    def run_released(self) -> None: ...

    def run_claimed(self, *, is_recovery: bool) -> None: ...

    def write_fenced(self) -> None: ...

    def lease_lost(self) -> None: ...

    def queue_measured(self, waiting: int | None, oldest_seconds: float | None) -> None: ...


NO_TELEMETRY: Final[Telemetry] = NullTelemetry()
