"""The prices of models."""

from typing import Protocol

from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price


class Prices(Protocol):
    async def find(self, choice: ModelChoice) -> Price | None:
        """The model's current price. None if it is not known. It is never guessed: a server that only speaks a
        provider's API may charge anything."""
        ...
