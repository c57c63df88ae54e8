"""What operators are told of a run that ends by a use case alone, because nobody carried it."""

import logging

from holdfast.core.endings import log_fields
from holdfast.core.runs import Run
from holdfast.ports.services import Services

log = logging.getLogger(__name__)


def report_end(services: Services, run: Run) -> None:
    services.telemetry.run_ended(run)
    log.info("run.ended", extra={"run_id": run.id, "agent_id": run.agent_id, **log_fields(run)})
