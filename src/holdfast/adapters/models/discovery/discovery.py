"""What the configured providers say of their models: asked side by side, not for long, and not often.

Cheap to import; what asks is loaded in a thread when first needed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from types import ModuleType

from holdfast.adapters.loading import load_in_thread
from holdfast.adapters.models.discovery.model_list import ModelList
from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.providers.table import AZURE, BEDROCK, VERTEX
from holdfast.errors import InvalidArgument, ModelTimedOut

# How long one provider may take to say what it has; whoever is slower is left out.
TIMEOUT_SECONDS = 2.0
# How long an answer holds. A server that could not be reached is asked again sooner.
FRESH_SECONDS = 60.0
FAILED_FRESH_SECONDS = 10.0

# Of so many accounts it is remembered what they said; users bring new ones, and each new key is another.
_MAX_ACCOUNTS = 1_000

# Whoever has a key here cannot be told what it opens: names are those of deployments, regions and contracts.
WITHOUT_MODEL_LIST = frozenset({AZURE, BEDROCK, VERTEX})


class ModelDiscovery:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lists: dict[str, tuple[float, ModelList | None]] = {}
        self._requests: dict[str, asyncio.Task[ModelList | None]] = {}

    def last_list(self, key: str) -> ModelList | None:
        """What was said last, however long ago."""
        return self._lists.get(key, (0.0, None))[1]

    async def refresh(self, accounts: Iterable[Account]) -> None:
        """See to it that what these providers have is known, as far as they say it."""
        due = [account for account in accounts if self._is_due(account)]
        if due:
            await asyncio.gather(*map(self._refresh_once, due))

    async def verify(self, account: Account) -> None:
        """See whether the provider takes the account's keys. ModelError if it does not."""
        if account.provider in WITHOUT_MODEL_LIST:
            raise InvalidArgument(
                f"Keys for {account.provider} cannot be checked without asking a model. Send a message to see."
            )
        listing = await load_in_thread(_load_listing, verifying=not account.is_plain_http)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await listing.verify(account)
        except TimeoutError:
            raise ModelTimedOut(f"No answer within {TIMEOUT_SECONDS:g} s.") from None

    def _is_due(self, account: Account) -> bool:
        until, _ = self._lists.get(account.cache_key, (self._now(), None))
        return account.provider not in WITHOUT_MODEL_LIST and until <= self._now()

    async def _refresh_once(self, account: Account) -> None:
        """Those who ask for the same at the same time ask once."""
        asking = self._requests.get(account.cache_key)
        if asking is None:
            asking = asyncio.create_task(_fetch(account), name=f"models-of-{account.provider}")
            self._requests[account.cache_key] = asking
            asking.add_done_callback(lambda _: self._requests.pop(account.cache_key, None))
        found = await asyncio.shield(asking)
        fresh = FAILED_FRESH_SECONDS if found is None else FRESH_SECONDS
        # A server that has just gone away had these models a moment ago.
        kept = found or self.last_list(account.cache_key)
        self._remember(account.cache_key, self._now() + fresh, kept)

    def _remember(self, key: str, until: float, said: ModelList | None) -> None:
        """Whoever was asked longest ago is forgotten first."""
        self._lists.pop(key, None)
        self._lists[key] = until, said
        while len(self._lists) > _MAX_ACCOUNTS:
            del self._lists[next(iter(self._lists))]


async def _fetch(account: Account) -> ModelList | None:
    """Nothing if the provider does not answer in time, or not with a list."""
    listing = await load_in_thread(_load_listing, verifying=not account.is_plain_http)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            listed: ModelList | None = await listing.fetch(account)
    except TimeoutError:
        return None
    return listed


def _load_listing(*, verifying: bool) -> ModuleType:
    from holdfast.adapters.models.discovery import listing  # noqa: PLC0415 - the HTTP client takes 0.2 s to import

    if verifying:
        listing.load_certificates()
    return listing
