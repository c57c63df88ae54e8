"""What the configured providers say of their models: asked side by side, not for long, and not often.

Cheap to import; what asks is loaded in a thread when first needed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from types import ModuleType

from holdfast.adapters.loading import loaded
from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.listed import Listed
from holdfast.adapters.models.providers import AZURE, BEDROCK, VERTEX
from holdfast.errors import InvalidArgument, ModelTimedOut

# How long one provider may take to say what it has; whoever is slower is left out.
ANSWER_SECONDS = 2.0
# How long an answer holds. A server that could not be reached is asked again sooner.
FRESH_SECONDS = 60.0
MISSING_FRESH_SECONDS = 10.0

# Of so many accounts it is remembered what they said; users bring new ones, and each new key is another.
_REMEMBERED = 1_000

# Whoever has a key here cannot be told what it opens: names are those of deployments, regions and contracts.
CANNOT_SAY = frozenset({AZURE, BEDROCK, VERTEX})


class Inquiry:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[str, tuple[float, Listed | None]] = {}
        self._asking: dict[str, asyncio.Task[Listed | None]] = {}

    def known(self, key: str) -> Listed | None:
        """What was said last, however long ago."""
        return self._known.get(key, (0.0, None))[1]

    async def ask(self, accounts: Iterable[Account]) -> None:
        """See to it that what these providers have is known, as far as they say it."""
        due = [account for account in accounts if self._is_due(account)]
        if due:
            await asyncio.gather(*map(self._once, due))

    async def verify(self, account: Account) -> None:
        """See whether the provider takes the account's keys. ModelError if it does not."""
        if account.provider in CANNOT_SAY:
            raise InvalidArgument(
                f"Keys for {account.provider} cannot be checked without asking a model. Send a message to see."
            )
        listing = await loaded(_loaded, verifying=not account.is_plain_http)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await listing.verify(account)
        except TimeoutError:
            raise ModelTimedOut(f"No answer within {ANSWER_SECONDS:g} s.") from None

    def _is_due(self, account: Account) -> bool:
        until, _ = self._known.get(account.key, (self._now(), None))
        return account.provider not in CANNOT_SAY and until <= self._now()

    async def _once(self, account: Account) -> None:
        """Those who ask for the same at the same time ask once."""
        asking = self._asking.get(account.key)
        if asking is None:
            asking = asyncio.create_task(_asked(account), name=f"models-of-{account.provider}")
            self._asking[account.key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(account.key, None))
        found = await asyncio.shield(asking)
        fresh = MISSING_FRESH_SECONDS if found is None else FRESH_SECONDS
        # A server that has just gone away had these models a moment ago.
        kept = found or self.known(account.key)
        self._remember(account.key, self._now() + fresh, kept)

    def _remember(self, key: str, until: float, said: Listed | None) -> None:
        """Whoever was asked longest ago is forgotten first."""
        self._known.pop(key, None)
        self._known[key] = until, said
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]


async def _asked(account: Account) -> Listed | None:
    """Nothing if the provider does not answer in time, or not with a list."""
    listing = await loaded(_loaded, verifying=not account.is_plain_http)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            listed: Listed | None = await listing.ask(account)
    except TimeoutError:
        return None
    return listed


def _loaded(*, verifying: bool) -> ModuleType:
    from holdfast.adapters.models import (  # noqa: PLC0415 - the HTTP client takes 0.2 s to import
        listing,
    )

    if verifying:
        listing.certificates()
    return listing
