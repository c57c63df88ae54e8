"""What one request may use up, and what it was that ran out. Not in V1."""

from msgspec import Struct

from holdfast.core.money import NANOS_PER_DOLLAR


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None: as much as it takes. Money in billionths of a US dollar; time from the moment a run begins, without the
    wait for its turn."""

    total_tokens: int | None = None
    cost: int | None = None
    seconds: float | None = None


class Overrun(Struct, frozen=True):
    """Why a run was stopped: the request's own field, what it allowed and what was used, in its own unit.
    ``estimated``: an answer was stopped in its middle, so its provider never said what it took."""

    limit: str
    value: float
    used: float
    estimated: bool = False


def find_overrun(
    budget: Budget, tokens: int, cost: int | None, *, estimated: bool = False
) -> Overrun | None:
    """What has run out when so much was used."""
    if budget.total_tokens is not None and tokens > budget.total_tokens:
        return Overrun("max_total_tokens", budget.total_tokens, tokens, estimated)
    if budget.cost is not None and cost is not None and cost > budget.cost:
        allowed, used = budget.cost / NANOS_PER_DOLLAR, cost / NANOS_PER_DOLLAR
        return Overrun("max_cost", allowed, used, estimated)
    return None


def time_overrun(seconds: float, used: float) -> Overrun:
    return Overrun("max_seconds", seconds, round(used, 3))
