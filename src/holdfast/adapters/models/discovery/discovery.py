"""Asks the configured providers for their lists of models: in parallel, with a deadline, and caches the answers.

Cheap to import; the HTTP client is loaded in a thread when it is first needed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from types import ModuleType

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.discovery.model_list import ModelList
from holdfast.errors import InvalidArgument, ModelTimedOut
from holdfast.loading import load_in_thread

# How long one provider may take to answer; a slower one is left out.
TIMEOUT_SECONDS = 2.0
# How long an answer is used. A server that could not be reached is asked again sooner.
FRESH_SECONDS = 60.0
FAILED_FRESH_SECONDS = 10.0

# The lists of this many accounts are cached. Each key that a user stores is another account.
_MAX_ACCOUNTS = 1_000


class ModelDiscovery:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lists: dict[str, tuple[float, ModelList | None]] = {}
        self._requests: dict[str, asyncio.Task[ModelList | None]] = {}

    def last_list(self, key: str) -> ModelList | None:
        """The last list that the account's provider gave, however old it is."""
        return self._lists.get(key, (0.0, None))[1]

    async def refresh(self, accounts: Iterable[Account]) -> None:
        """Ask the providers whose lists are missing or too old."""
        due = [account for account in accounts if self._is_due(account)]
        if due:
            await asyncio.gather(*map(self._refresh_once, due))

    async def verify(self, account: Account) -> None:
        """Check that the provider accepts the account's keys. ModelError if it does not."""
        if not account.row.has_model_list:
            raise InvalidArgument(
                f"Keys for {account.provider} cannot be checked without asking a model. Send a message to see."
            )
        listing = await load_in_thread(_load_listing, with_certificates=not account.is_plain_http)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await listing.verify(account)
        except TimeoutError:
            raise ModelTimedOut(f"No answer within {TIMEOUT_SECONDS:g} s.") from None

    def _is_due(self, account: Account) -> bool:
        until, _ = self._lists.get(account.cache_key, (self._now(), None))
        return account.row.has_model_list and until <= self._now()

    async def _refresh_once(self, account: Account) -> None:
        """Concurrent callers share one request."""
        request = self._requests.get(account.cache_key)
        if request is None:
            request = asyncio.create_task(_fetch(account), name=f"models-of-{account.provider}")
            self._requests[account.cache_key] = request
            request.add_done_callback(lambda _: self._requests.pop(account.cache_key, None))
        found = await asyncio.shield(request)
        fresh = FAILED_FRESH_SECONDS if found is None else FRESH_SECONDS
        # A server that has just become unreachable had these models a moment ago.
        listed = found or self.last_list(account.cache_key)
        self._remember(account.cache_key, self._now() + fresh, listed)

    def _remember(self, key: str, until: float, listed: ModelList | None) -> None:
        """The account that was asked longest ago is dropped first."""
        self._lists.pop(key, None)
        self._lists[key] = until, listed
        while len(self._lists) > _MAX_ACCOUNTS:
            del self._lists[next(iter(self._lists))]


async def _fetch(account: Account) -> ModelList | None:
    """None if the provider does not answer in time, or not with a list."""
    listing = await load_in_thread(_load_listing, with_certificates=not account.is_plain_http)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            listed: ModelList | None = await listing.fetch(account)
    except TimeoutError:
        return None
    return listed


def _load_listing(*, with_certificates: bool) -> ModuleType:
    from holdfast.adapters.models.discovery import listing  # noqa: PLC0415 - the HTTP client takes 0.2 s to import

    if with_certificates:
        listing.load_certificates()
    return listing
