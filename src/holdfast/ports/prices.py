"""What models cost."""

from typing import Protocol

from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price


class Prices(Protocol):
    async def find(self, choice: ModelChoice) -> Price | None:
        """What the model costs now. None if that is not known, and it is never guessed: a server that only
        speaks a provider's API may charge anything."""
        ...
