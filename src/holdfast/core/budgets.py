"""The budget of one request, and which of its limits was exceeded. Not in V1."""

from msgspec import Struct

from holdfast.core.money import NANOS_PER_DOLLAR

# The fields of the request that set the limits, as an overrun names them.
MAX_TOTAL_TOKENS = "max_total_tokens"
MAX_COST = "max_cost"
MAX_SECONDS = "max_seconds"


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None: no limit. ``cost`` is in billionths of a US dollar; ``seconds`` count from the start of the run and
    exclude the wait for its turn."""

    total_tokens: int | None = None
    cost: int | None = None
    seconds: float | None = None


class Overrun(Struct, frozen=True):
    """Why a run was stopped: the field of the request, its value and what was used, in the unit of that field.
    ``estimated``: the answer was interrupted, so its provider did not report the usage."""

    limit: str
    value: float
    used: float
    estimated: bool = False


def find_overrun(
    budget: Budget, tokens: int, cost: int | None, *, estimated: bool = False
) -> Overrun | None:
    """The limit that this usage exceeds, if any."""
    if budget.total_tokens is not None and tokens > budget.total_tokens:
        return Overrun(MAX_TOTAL_TOKENS, budget.total_tokens, tokens, estimated)
    if budget.cost is not None and cost is not None and cost > budget.cost:
        allowed, used = budget.cost / NANOS_PER_DOLLAR, cost / NANOS_PER_DOLLAR
        return Overrun(MAX_COST, allowed, used, estimated)
    return None


def time_overrun(seconds: float, used: float) -> Overrun:
    return Overrun(MAX_SECONDS, seconds, round(used, 3))
