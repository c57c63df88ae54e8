"""The prices of models, in the unit of ``money``."""

from decimal import ROUND_HALF_EVEN, Decimal

from msgspec import Struct

from holdfast.core.money import NANOS_PER_DOLLAR
from holdfast.core.runs import Usage

# Rates are dollars per million tokens; this is the price of one token at a rate of 1.
_NANOS_PER_TOKEN = NANOS_PER_DOLLAR // 1_000_000


class Rates(Struct, frozen=True, kw_only=True):
    """US dollars per million tokens. ``request`` is dollars per request, where that is charged."""

    input: Decimal
    cache_read: Decimal
    cache_write: Decimal
    output: Decimal
    request: Decimal = Decimal(0)


class Price(Struct, frozen=True):
    """What a model's provider charges. With a long prompt every token may cost more: ``bands`` are pairs of a number of
    tokens and the rates for longer prompts, the largest number first; the last band is for all others."""

    bands: tuple[tuple[int, Rates], ...]

    def cost(self, usage: Usage) -> int:
        """The cost of the tokens in billionths of a dollar."""
        rates = next(rates for start, rates in self.bands if usage.prompt_tokens > start)
        read, write = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        tokens = (
            max(usage.prompt_tokens - read - write, 0) * rates.input
            + read * rates.cache_read
            + write * rates.cache_write
            + usage.completion_tokens * rates.output
        )
        nanos = tokens * _NANOS_PER_TOKEN + rates.request * NANOS_PER_DOLLAR
        return int(nanos.to_integral_value(ROUND_HALF_EVEN))


class Costs(Struct, frozen=True, kw_only=True):
    """The cost of some steps. ``unpriced`` counts the steps with an answer whose price is not known; the sum is without
    them."""

    cost: int | None
    steps: int
    unpriced: int
