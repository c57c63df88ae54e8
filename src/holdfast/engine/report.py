"""What operators are told of a run while this process carries it: log lines, and the telemetry."""

import logging

from holdfast import logs
from holdfast.core.endings import log_fields
from holdfast.core.steps import Step, StepStatus
from holdfast.core.turn import AskModel, Compact, RunTools
from holdfast.engine.checkpoint import CheckpointResult
from holdfast.ports.services import Services

log = logging.getLogger(__name__)


class RunReport:
    def __init__(self, services: Services, at: CheckpointResult) -> None:
        """The task that makes it carries the run from now on: each of its log lines says so."""
        run = at.state.run
        self._telemetry = services.telemetry
        self._ended = False
        # The step that is over, as far as the model goes; it is told of once its tools are done.
        self._answered_step: Step | None = None
        logs.bind(
            run_id=run.id,
            agent_id=run.agent_id,
            organization_id=run.organization_id,
            trace_id=run.request.trace_id,
        )
        self._telemetry.run_started(run, at.state.agent)
        if run.progress.recoveries:
            log.info("run.resumed", extra={"recoveries": run.progress.recoveries})
        else:
            log.debug("run.started")
        self.on_checkpoint(at)

    def on_checkpoint(self, at: CheckpointResult) -> None:
        """The run has come to its next checkpoint."""
        step = at.state.step
        answered = step is not None and step.status is not StepStatus.PENDING
        self._answered_step = step if answered else None
        if at.finished_step is not None and not isinstance(at.command, RunTools):
            self._telemetry.step_ended(at.finished_step)
        if at.command is None:
            self._ended = True
            if step is not None:
                self._telemetry.step_ended(step)
            self._telemetry.run_ended(at.state.run)
            log.info("run.ended", extra=log_fields(at.state.run))
        elif isinstance(at.command, AskModel | Compact) and step is not None:
            logs.bind(step_id=step.id)
            self._telemetry.step_started(step)
            log.debug("step.started", extra={"model": step.model.handle})

    def close(self) -> None:
        """This process carries the run no longer."""
        if self._ended:
            return
        if self._answered_step is not None:
            self._telemetry.step_ended(self._answered_step)
        self._telemetry.run_released()
