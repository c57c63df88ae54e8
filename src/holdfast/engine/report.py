"""Log lines and telemetry of a run while this process works on it."""

import logging

from holdfast import logs
from holdfast.core.steps import Step, StepStatus
from holdfast.core.turn import AskModel, Compact, RunTools
from holdfast.engine.checkpoint import CheckpointResult
from holdfast.ports.services import Services
from holdfast.run_end import report_run_end

log = logging.getLogger(__name__)


class RunReport:
    def __init__(self, services: Services, result: CheckpointResult) -> None:
        """Every log line of the current task names the run from now on."""
        run = result.state.run
        self._telemetry = services.telemetry
        self._has_ended = False
        # A step with a complete answer. It is reported as ended once its tools are done.
        self._answered_step: Step | None = None
        logs.bind(
            run_id=run.id,
            agent_id=run.agent_id,
            organization_id=run.organization_id,
            trace_id=run.request.trace_id,
        )
        self._telemetry.run_started(run, result.state.agent)
        if run.progress.recoveries:
            log.info("run.resumed", extra={"recoveries": run.progress.recoveries})
        else:
            log.debug("run.started")
        self.on_checkpoint(result)

    def on_checkpoint(self, result: CheckpointResult) -> None:
        step = result.state.step
        is_answered = step is not None and step.status is not StepStatus.PENDING
        self._answered_step = step if is_answered else None
        if result.finished_step is not None and not isinstance(result.command, RunTools):
            self._telemetry.step_ended(result.finished_step)
        if result.has_ended:
            self._has_ended = True
            if step is not None:
                self._telemetry.step_ended(step)
            report_run_end(self._telemetry, result.state.run)
        elif isinstance(result.command, AskModel | Compact) and step is not None:
            logs.bind(step_id=step.id)
            self._telemetry.step_started(step)
            log.debug("step.started", extra={"model": step.model.handle})

    def close(self) -> None:
        """This process does not work on the run any more."""
        if self._has_ended:
            return
        if self._answered_step is not None:
            self._telemetry.step_ended(self._answered_step)
        self._telemetry.run_released()
