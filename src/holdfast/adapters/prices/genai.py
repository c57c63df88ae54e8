"""Prices from genai-prices, the collection that pydantic-ai uses.

Its own calculation takes 0.2 ms, mostly to check its tables. So each table is converted to rates once; a cost is then a
few multiplications. Its data takes 50 ms and 6 MB to load, so that happens at the first use, in a thread.
"""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price, Rates
from holdfast.loading import load_in_thread
from holdfast.ports.clock import Clock

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice

_MILLION: Final = 1_000_000


class GenaiPrices:
    def __init__(self, base_urls: Mapping[str, str | None], clock: Clock) -> None:
        """``base_urls``: the address of each configured provider; None is its own. Another address has prices only if
        the collection has it."""
        self._base_urls = base_urls
        self._clock = clock
        self._snapshot: DataSnapshot | None = None
        # By table: a model may have several, for different days or hours.
        self._prices: dict[int, tuple[ModelPrice, Price]] = {}

    async def find(self, choice: ModelChoice) -> Price | None:
        if choice.provider not in self._base_urls:
            return None
        if self._snapshot is None:
            self._snapshot = await load_in_thread(_load_snapshot)
        table = self._find_table(self._snapshot, choice)
        if table is None:
            return None
        if (known := self._prices.get(id(table))) is None:
            # With the table, so that its id stays unique.
            known = self._prices[id(table)] = (table, _to_price(table))
        return known[1]

    def _find_table(self, snapshot: "DataSnapshot", choice: ModelChoice) -> "ModelPrice | None":
        base_url = choice.endpoint or self._base_urls[choice.provider]
        row = PROVIDERS[choice.provider]
        name = None if base_url else row.price_name or row.name
        try:
            _, model = snapshot.find_provider_model(choice.name, None, name, base_url)
        except LookupError:
            return None
        return model.get_prices(self._clock.now())


def _load_snapshot() -> "DataSnapshot":
    from genai_prices.data_snapshot import (  # noqa: PLC0415 - 1.5 MB of tables
        get_snapshot,
    )

    snapshot = get_snapshot()
    # The tables themselves are only parsed at the first search.
    first = next(iter(PROVIDERS.values()))
    with suppress(LookupError):
        snapshot.find_provider_model(first.summary_model or "", None, first.name, None)
    return snapshot


def _to_price(table: "ModelPrice") -> Price:
    from genai_prices.types import TieredPrices  # noqa: PLC0415 - 1.5 MB of tables

    tiered = [value for value in vars(table).values() if isinstance(value, TieredPrices)]
    starts = {tier.start for value in tiered for tier in value.tiers}
    bands = [(start, _measure_rates(table, start + 1)) for start in sorted(starts, reverse=True)]
    return Price((*bands, (-1, _measure_rates(table, 0))))


def _measure_rates(table: "ModelPrice", prompt: int) -> Rates:
    """The rates for a prompt of this length, measured as the difference that each kind of token makes."""
    # The lowest band has no minimum: any small prompt shows what its tokens cost.
    size = prompt or 1
    request, plain = _cost(table), _cost(table, prompt=size)
    rates = {
        "input": plain - request,
        "cache_read": _cost(table, prompt=size, cache_read=size) - request,
        "cache_write": _cost(table, prompt=size, cache_write=size) - request,
    }
    output = _cost(table, prompt=prompt, output=_MILLION) - _cost(table, prompt=prompt)
    per_million = {name: dollars * _MILLION / size for name, dollars in rates.items()}
    return Rates(**per_million, output=output, request=request)


def _cost(
    table: "ModelPrice",
    *,
    prompt: int = 0,
    cache_read: int = 0,
    cache_write: int = 0,
    output: int = 0,
) -> Decimal:
    from genai_prices import Usage  # noqa: PLC0415 - 1.5 MB of tables

    used = Usage(
        input_tokens=prompt,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output,
    )
    return table.calc_price(used)["total_price"]
