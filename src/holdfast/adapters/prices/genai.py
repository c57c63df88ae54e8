"""Prices from pydantic-ai's own collection, genai-prices.

Its calculation takes 0.2 ms, of which most is checking its tables. So each table is read once, as rates: what is left is
a few multiplications. Its data takes 50 ms and 6 MB, so it is read when first needed, in a thread.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from holdfast.adapters.loading import load_in_thread
from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price, Rates
from holdfast.ports.clock import Clock

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice

# Where the collection's name for a provider is another than ours.
_NAMES: Final = {
    "google_ai": "google",
    "google_vertex": "google",
    "bedrock": "aws",
    "xai": "x-ai",
}
_MILLION: Final = 1_000_000


class GenaiPrices:
    def __init__(self, base_urls: Mapping[str, str | None], clock: Clock) -> None:
        """``base_urls``: where each configured provider is reached; None is its own address. Another address is
        only priced if the collection knows it."""
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
            # With the table, so that its id stays its own.
            known = self._prices[id(table)] = (table, _to_price(table))
        return known[1]

    def _find_table(self, snapshot: "DataSnapshot", choice: ModelChoice) -> "ModelPrice | None":
        base_url = choice.endpoint or self._base_urls[choice.provider]
        name = None if base_url else _NAMES.get(choice.provider, choice.provider)
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
    # The tables themselves are only read when something is looked for.
    snapshot.find_provider_model("gpt-4o-mini", None, "openai", None)
    return snapshot


def _to_price(table: "ModelPrice") -> Price:
    from genai_prices.types import TieredPrices  # noqa: PLC0415 - see above

    tiered = [value for value in vars(table).values() if isinstance(value, TieredPrices)]
    starts = {tier.start for value in tiered for tier in value.tiers}
    bands = [(start, _measure_rates(table, start + 1)) for start in sorted(starts, reverse=True)]
    return Price((*bands, (-1, _measure_rates(table, 0))))


def _measure_rates(table: "ModelPrice", prompt: int) -> Rates:
    """The rates for a prompt of this length, as the differences that single kinds of tokens make."""
    # Without a prompt no band is reached; any small prompt is as good to see what its tokens cost.
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
    from genai_prices import Usage  # noqa: PLC0415 - see above

    used = Usage(
        input_tokens=prompt,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output,
    )
    return table.calc_price(used)["total_price"]
