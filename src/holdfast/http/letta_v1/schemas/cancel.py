"""Bodies of requests that cancel runs (wire-v1 §5.5)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from holdfast.core.cancellation import Action
from holdfast.http.letta_v1.schemas.limits import Names

Outcome = Literal["cancelled", "failed"]


class CancelBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    run_ids: Names | None = None
    # Not in V1: why, for the receipt; and whether the run's messages stay in the context.
    reason: str | None = None
    action: Action = Action.KEEP


class CancelRunBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    reason: str | None = None
    action: Action = Action.KEEP
