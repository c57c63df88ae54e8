"""Measuring the queue for telemetry: one read every few seconds, so that the export of metrics need not wait for it."""

import asyncio
import logging
from typing import Final

from holdfast.errors import BackendError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# How often the queue is measured. Metrics are collected less often than that.
SAMPLE_SECONDS: Final = 5.0


class QueueMetrics:
    """Every server measures the queue of the deployment: whoever collects metrics may reach any of them."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Report how many runs wait, and for how long; that it is unknown if the store does not answer."""
        telemetry = self._services.telemetry
        try:
            waiting, seconds = await self._services.store.read(_measure)
        except BackendError:
            log.exception("store.unreachable", extra={"while": "measuring the queue"})
            telemetry.queue_measured(None, None)
        except Exception:
            # Metrics must not end the server.
            log.exception("queue.not_measured")
            telemetry.queue_measured(None, None)
        else:
            telemetry.queue_measured(waiting, seconds)


def _measure(tx: Transaction) -> tuple[int, float]:
    depth = tx.queue.measure()
    return depth.waiting, depth.oldest_seconds(tx.servers.now()) or 0.0
