"""What operators are told of a run that ends by a use case alone, because nobody carried it."""

import logging

from holdfast.core.endings import summary
from holdfast.core.runs import Run
from holdfast.ports.house import House

log = logging.getLogger(__name__)


def tell(house: House, run: Run) -> None:
    house.telemetry.run_ended(run)
    log.info("run.ended", extra={"run_id": run.id, "agent_id": run.agent_id, **summary(run)})
