"""The catalogue of embedding models: what the configured providers list, what is published, and what is installed.

The number of dimensions is never invented: a provider or its list says it, or one vector of the model is counted.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.adapters.embedder.local.models import LOCAL_PROVIDER
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.discovery.discovery import (
    FAILED_FRESH_SECONDS,
    TIMEOUT_SECONDS,
    ModelDiscovery,
)
from holdfast.adapters.models.providers.known_models import published_dimensions
from holdfast.core.models import EmbeddingInfo
from holdfast.errors import ModelError

# Models of which a vector is counted for one list. A server of the operator has few; a gateway may have hundreds.
_MAX_MEASURED: Final = 16
_MEASURED_TEXT: Final = "dimensions"


class EmbeddingCatalogue:
    def __init__(
        self,
        settings: ProviderSettings,
        discovery: ModelDiscovery,
        embedder: EmbedderRouter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._discovery = discovery
        self._embedder = embedder
        self._now = now
        # The models that could not be measured, and until when they are not asked again.
        self._failed: dict[str, float] = {}

    async def list_all(self) -> Sequence[EmbeddingInfo]:
        accounts = [
            account for account in self._settings.accounts.values() if account.row.can_embed
        ]
        await self._discovery.refresh(accounts)
        found = {
            f"{account.provider}/{name}": dimensions
            for account in accounts
            for name, dimensions in self._list_offered(account)
        }
        await self._measure([handle for handle, dimensions in found.items() if not dimensions])
        known = [
            _embedding_info(handle, dimensions)
            for handle, stated in found.items()
            if (dimensions := stated or self._embedder.measured_dimensions(handle))
        ]
        local = [
            _embedding_info(f"{LOCAL_PROVIDER}/{model.name}", model.dimensions)
            for model in self._embedder.local.list_installed()
        ]
        return sorted([*known, *local], key=lambda info: info.handle)

    async def find(self, handle: str) -> EmbeddingInfo | None:
        provider, _, name = handle.partition("/")
        stated = self._find_stated(provider, name) or self._embedder.measured_dimensions(handle)
        account = self._settings.accounts.get(provider)
        if stated is None and account is not None and account.row.can_embed:
            await self._discovery.refresh([account])
            stated = dict(self._list_offered(account)).get(name)
            if stated is None and not self._is_missing(account, name):
                await self._measure([handle])
                stated = self._embedder.measured_dimensions(handle)
        return None if stated is None else _embedding_info(handle, stated)

    def _find_stated(self, provider: str, name: str) -> int | None:
        if provider == LOCAL_PROVIDER:
            installed = {model.name: model for model in self._embedder.local.list_installed()}
            return installed[name].dimensions if name in installed else None
        return published_dimensions(provider).get(name)

    def _list_offered(self, account: Account) -> list[tuple[str, int | None]]:
        """The embedding models of the provider's list with their dimensions; without a list, those that it publishes."""
        published = published_dimensions(account.provider)
        listed = self._discovery.last_list(account.cache_key)
        if listed is None:
            return list(published.items())
        return [
            (model.name, model.dimensions or published.get(model.name))
            for model in listed.embeddings
        ]

    def _is_missing(self, account: Account, name: str) -> bool:
        listed = self._discovery.last_list(account.cache_key)
        return listed is not None and listed.lacks(name)

    async def _measure(self, handles: Iterable[str]) -> None:
        """Have each model make one vector, if it is on a server that the operator named; the others charge for it."""
        due = [
            handle
            for handle in handles
            if self._is_own(handle)
            and self._embedder.measured_dimensions(handle) is None
            and self._failed.get(handle, 0.0) <= self._now()
        ]
        await asyncio.gather(*map(self._measure_one, due[:_MAX_MEASURED]))

    async def _measure_one(self, handle: str) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._embedder.embed(handle, [_MEASURED_TEXT], is_query=True)
        except (ModelError, TimeoutError):
            until = self._now() + FAILED_FRESH_SECONDS
            self._failed = {
                other: time for other, time in self._failed.items() if time > self._now()
            } | {handle: until}

    def _is_own(self, handle: str) -> bool:
        account = self._settings.accounts[handle.partition("/")[0]]
        return account.row.is_own_server or account.base_url is not None


def _embedding_info(handle: str, dimensions: int) -> EmbeddingInfo:
    provider, _, name = handle.partition("/")
    return EmbeddingInfo(
        handle=handle, provider=provider, name=name, dimensions=dimensions, display_name=name
    )
