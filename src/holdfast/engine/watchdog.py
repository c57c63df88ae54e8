"""Ends runs that make no progress: an effect hangs that should have ended by its own time limit.

An expected wait (a tool within its time limit, the wait before a retry) is not a stall. A run that waits for a person
or for its turn has no worker and is not watched. Between two effects a run only waits for the store, which has its
own time limits.
"""

import logging
from collections.abc import Mapping

from holdfast.core.runs import RunFailure, StopReason
from holdfast.core.turn import EndTurn
from holdfast.engine.interruption import Interruption
from holdfast.errors import ModelTimedOut
from holdfast.ports.clock import Clock

log = logging.getLogger(__name__)

ASKING = "asking the model"
RUNNING_TOOLS = "running tools"


class Watchdog:
    def __init__(self, clock: Clock, stall_seconds: float) -> None:
        self._clock = clock
        self._stall_seconds = stall_seconds
        # Since when the interruption of a run's effect has been seen, by run.
        self._stopping_since: dict[str, int] = {}

    def check(self, live: Mapping[str, Interruption]) -> list[str]:
        """Interrupt every run whose effect has made no progress for too long. Returns the runs whose effect has not
        stopped for the same time after an interruption, whatever its cause."""
        now = self._clock.monotonic_ns()
        self._stop_stalled(live, now)
        self._stopping_since = {
            run_id: self._stopping_since.get(run_id, now)
            for run_id, interruption in live.items()
            if interruption.is_triggered and interruption.effect is not None
        }
        return [
            run_id
            for run_id, since in self._stopping_since.items()
            if (now - since) / 1e9 > self._stall_seconds
        ]

    def _stop_stalled(self, live: Mapping[str, Interruption], now: int) -> None:
        for run_id, interruption in live.items():
            effect = interruption.effect
            if effect is None or interruption.is_triggered:
                continue
            quiet_seconds = (now - effect.progressed_at_ns) / 1e9
            if quiet_seconds > self._stall_seconds + effect.expected_quiet_seconds:
                fields = {"run_id": run_id, "agent_id": effect.agent_id, "while": effect.activity}
                log.warning("run.stalled", extra={**fields, "seconds": quiet_seconds})
                interruption.trigger(self._build_end(effect.activity, quiet_seconds))

    def _build_end(self, activity: str, quiet_seconds: float) -> EndTurn:
        detail = (
            f"The run made no progress for {quiet_seconds:.0f} seconds while {activity}; "
            f"HOLDFAST_RUN_STALL_SECONDS is {self._stall_seconds:g}."
        )
        if activity == ASKING:
            failure = RunFailure(ModelTimedOut.kind, ModelTimedOut.summary, detail)
            return EndTurn(StopReason.LLM_API_ERROR, failure)
        return EndTurn(StopReason.ERROR, RunFailure("stalled", "The run got no further.", detail))
