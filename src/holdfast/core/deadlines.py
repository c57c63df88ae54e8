"""How long a held call waits, and what becomes of it then. How a deadline comes about is in ``expiry``."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

# A person needs a moment; and what nobody has decided for a year nobody will.
MIN_TIMEOUT_SECONDS = 1
MAX_TIMEOUT_SECONDS = 365 * 24 * 60 * 60


class OnTimeout(StrEnum):
    """What becomes of a call that nobody answered in time. A call that only the client can run fails."""

    DENY = "deny"
    APPROVE = "approve"
    FAIL = "fail"


class Deadline(Struct, frozen=True):
    at: datetime
    outcome: OnTimeout
