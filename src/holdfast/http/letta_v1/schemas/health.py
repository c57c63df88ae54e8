"""The answer of the health and ready checks (wire-v1 §2.1)."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class Health(Struct, frozen=True):
    version: str
    status: str
    # Not in V1: whether the wake-ups of other servers arrive. If not, this one asks the database at intervals.
    notifications: Literal["ok", "polling"] | UnsetType = UNSET
