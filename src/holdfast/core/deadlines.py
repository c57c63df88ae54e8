"""The deadline of a held call. ``expiry`` computes it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

# Shorter limits give nobody time to answer; a request that is a year old will not be answered.
MIN_TIMEOUT_SECONDS = 1
MAX_TIMEOUT_SECONDS = 365 * 24 * 60 * 60


class OnTimeout(StrEnum):
    """The answer to a call whose deadline has passed. A call of a client tool always fails."""

    DENY = "deny"
    APPROVE = "approve"
    FAIL = "fail"


class Deadline(Struct, frozen=True):
    at: datetime
    outcome: OnTimeout
