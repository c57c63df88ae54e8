"""A price list that knows one price, and a price for tests."""

from decimal import Decimal

from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price, Rates

# Each scripted answer has 10 tokens in and 5 out: 20,000 billionths of a dollar.
PRICE = Price(
    (
        (
            -1,
            Rates(
                input=Decimal("1.00"),
                cache_read=Decimal("0.10"),
                cache_write=Decimal("1.25"),
                output=Decimal("2.00"),
            ),
        ),
    )
)
ANSWER_COST = 20_000


class ScriptedPrices:
    """The same price for every model; None: it is unknown."""

    def __init__(self) -> None:
        self.price: Price | None = None

    async def find(self, choice: ModelChoice) -> Price | None:
        return self.price
