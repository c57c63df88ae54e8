"""Telling those who watch the server what it does, as it happens: spans and figures. Log lines are not its affair.

Every call is a fact. None waits, fails or changes anything, and none may be made per token.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from holdfast.core.agents import Agent
from holdfast.core.runs import Run
from holdfast.core.steps import Step


class Telemetry(Protocol):
    def trace_parent(self) -> str | None:
        """Where in a trace this task is, as W3C ``traceparent``: for whoever goes on elsewhere, or later."""
        ...

    def run_started(self, run: Run, agent: Agent) -> None:
        """This task carries the run from now on, until ``run_ended`` or ``run_left``. One that was interrupted begins
        again, in the trace in which it was sent."""
        ...

    def step_started(self, step: Step) -> None:
        """The run that this task carries has a new step."""
        ...

    def step_ended(self, step: Step) -> None:
        """It is over, as its status says. A step that another process began may end here."""
        ...

    def run_ended(self, run: Run) -> None:
        """A run is over, or waits for a person: that of this task, or one that nobody carried."""
        ...

    def run_released(self) -> None:
        """This task carries its run no longer, and it is not over: somebody else has it, or the next start will."""
        ...


class RequestSpan(Protocol):
    def set_response(self, status: int, route: str | None) -> None:
        """The answer begins. ``route`` is the pattern of the path, if there is one."""
        ...


class RequestTelemetry(Protocol):
    """For the door: who comes in, and what is answered."""

    def trace_request(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[RequestSpan]:
        """Around all that is done for a request. It goes on in the trace that its ``traceparent`` names."""
        ...

    def render_metrics(self) -> tuple[bytes, str]:
        """All figures as they are now in Prometheus' text form, and its media type. Blocks."""
        ...


class NullTelemetry:
    """Nobody watches."""

    def trace_parent(self) -> str | None:
        return None

    def run_started(self, run: Run, agent: Agent) -> None: ...

    def step_started(self, step: Step) -> None: ...

    def step_ended(self, step: Step) -> None: ...

    def run_ended(self, run: Run) -> None: ...

    def run_released(self) -> None: ...


NO_TELEMETRY: Final[Telemetry] = NullTelemetry()
