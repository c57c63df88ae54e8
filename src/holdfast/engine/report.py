"""What operators are told of a run while this process carries it: log lines, and the telemetry."""

import logging

from holdfast import logs
from holdfast.core.endings import summary
from holdfast.core.runs import Step, StepStatus
from holdfast.core.turn import AskModel, Compact, RunTools
from holdfast.engine.checkpoint import Advanced
from holdfast.ports.house import House

log = logging.getLogger(__name__)


class Report:
    def __init__(self, house: House, at: Advanced) -> None:
        """The task that makes it carries the run from now on: each of its log lines says so."""
        run = at.state.run
        self._telemetry = house.telemetry
        self._ended = False
        # The step that is over, as far as the model goes; it is told of once its tools are done.
        self._answered: Step | None = None
        logs.bind(
            run_id=run.id,
            agent_id=run.agent_id,
            organization_id=run.organization_id,
            trace_id=run.request.trace_id,
        )
        self._telemetry.run_began(run, at.state.agent)
        if run.progress.recoveries:
            log.info("run.resumed", extra={"recoveries": run.progress.recoveries})
        else:
            log.debug("run.began")
        self.advanced(at)

    def advanced(self, at: Advanced) -> None:
        """The run has come to its next checkpoint."""
        step = at.state.step
        answered = step is not None and step.status is not StepStatus.PENDING
        self._answered = step if answered else None
        if at.finished is not None and not isinstance(at.command, RunTools):
            self._telemetry.step_ended(at.finished)
        if at.command is None:
            self._ended = True
            if step is not None:
                self._telemetry.step_ended(step)
            self._telemetry.run_ended(at.state.run)
            log.info("run.ended", extra=summary(at.state.run))
        elif isinstance(at.command, AskModel | Compact) and step is not None:
            logs.bind(step_id=step.id)
            self._telemetry.step_began(step)
            log.debug("step.began", extra={"model": step.model.handle})

    def close(self) -> None:
        """This process carries the run no longer."""
        if self._ended:
            return
        if self._answered is not None:
            self._telemetry.step_ended(self._answered)
        self._telemetry.run_left()
