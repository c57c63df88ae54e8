"""The embedder: a model on this machine, or a provider over pydantic-ai.

This module is cheap to import. pydantic-ai, the SDKs and numpy are loaded when first needed, in a thread.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from holdfast.adapters.embedder.local.models import LOCAL_PROVIDER, LocalModels
from holdfast.adapters.embedder.texts import (
    MAX_QUARTERS,
    MIN_QUARTERS,
    check_dimensions,
    check_vectors,
    count_quarters,
    prepare_text,
    says_too_long,
)
from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.embeddings import Embeddings, Vector
from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price
from holdfast.core.runs import Usage
from holdfast.errors import ModelError, ModelTimedOut, UnknownModel
from holdfast.loading import load_in_thread
from holdfast.ports.prices import Prices

if TYPE_CHECKING:
    from holdfast.adapters.embedder.bridge import EmbeddingBridge

# How many requests to providers are under way at once (memory-v1 §4.6). One of them is always left to queries, so that a
# search does not wait for a large file.
MAX_REQUESTS: Final = 3
_MAX_DOCUMENT_REQUESTS: Final = MAX_REQUESTS - 1

# What is learned about a model is kept for this many.
_MAX_MODELS: Final = 1_000


class _Batch(Struct, frozen=True):
    vectors: tuple[Vector, ...]
    tokens: int


class EmbedderRouter:
    def __init__(
        self,
        settings: ProviderSettings,
        prices: Prices | None = None,
        *,
        timeout_seconds: float = 10.0,
        local: LocalModels | None = None,
    ) -> None:
        """``prices`` None: costs are not known. ``timeout_seconds``: how long one request may take."""
        self._settings = settings
        self._prices = prices
        self._timeout_seconds = timeout_seconds
        self._local = local or LocalModels()
        self._bridge: EmbeddingBridge | None = None
        self._loading = asyncio.Lock()
        self._requests = asyncio.Semaphore(MAX_REQUESTS)
        self._document_requests = asyncio.Semaphore(_MAX_DOCUMENT_REQUESTS)
        # By handle: the size to which texts are cut, and how many numbers a vector has.
        self._max_quarters: dict[str, int] = {}
        self._dimensions: dict[str, int] = {}

    @property
    def local(self) -> LocalModels:
        return self._local

    def is_configured(self, handle: str) -> bool:
        provider, _, name = handle.partition("/")
        if provider == LOCAL_PROVIDER:
            return self._local.is_installed(name)
        account = self._settings.accounts.get(provider)
        return bool(name) and account is not None and account.row.can_embed

    def measured_dimensions(self, handle: str) -> int | None:
        """How many numbers the model's last vector had; None if it has made none yet."""
        return self._dimensions.get(handle)

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        if not self.is_configured(handle):
            raise UnknownModel(_refusal(handle))
        if not texts:
            return Embeddings(vectors=())
        provider, _, name = handle.partition("/")
        if provider == LOCAL_PROVIDER:
            made = await self._local.embed(name, texts)
        else:
            made = await self._ask(self._settings.accounts[provider], name, texts, is_query)
        check_dimensions(made.vectors)
        _remember(self._dimensions, handle, made.vectors[0].dimensions)
        return made

    async def prepare(self, handle: str) -> None:
        """Load what the provider's SDK needs, so that the next request takes only the provider's time."""
        account = self._settings.accounts.get(handle.partition("/")[0])
        if account is not None and account.row.can_embed:
            await self._load(account)

    async def aclose(self) -> None:
        self._local.close()
        if self._bridge is not None:
            await self._bridge.aclose()

    async def _ask(
        self, account: Account, name: str, texts: Sequence[str], is_query: bool
    ) -> Embeddings:
        bridge = await self._load(account)
        price = await self._find_price(f"{account.provider}/{name}")
        asked = [
            self._ask_in_turn(bridge, account, name, batch, is_query=is_query)
            for batch in _split(texts, bridge.max_texts(account, name))
        ]
        batches = [await asked[0]] if len(asked) == 1 else await _gather(asked)
        tokens = sum(batch.tokens for batch in batches)
        return Embeddings(
            vectors=tuple(chain.from_iterable(batch.vectors for batch in batches)),
            tokens=tokens,
            cost=price.cost(Usage(prompt_tokens=tokens)) if price and tokens else None,
        )

    async def _ask_in_turn(
        self,
        bridge: "EmbeddingBridge",
        account: Account,
        name: str,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> _Batch:
        if is_query:
            return await self._ask_cut(bridge, account, name, texts, is_query=True)
        async with self._document_requests:
            return await self._ask_cut(bridge, account, name, texts, is_query=False)

    async def _ask_cut(
        self,
        bridge: "EmbeddingBridge",
        account: Account,
        name: str,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> _Batch:
        """Ask with texts of the size that the model accepts. How large that is, is learned from its refusals."""
        handle = f"{account.provider}/{name}"
        while True:
            limit = self._max_quarters.get(handle, MAX_QUARTERS)
            sent = [prepare_text(text, limit) for text in texts]
            try:
                return await self._ask_once(bridge, account, name, sent, is_query=is_query)
            except ModelError as error:
                longest = max(map(count_quarters, sent))
                if longest <= MIN_QUARTERS or not says_too_long(error):
                    raise
                _remember(self._max_quarters, handle, max(longest // 2, MIN_QUARTERS))

    async def _ask_once(
        self,
        bridge: "EmbeddingBridge",
        account: Account,
        name: str,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> _Batch:
        async with self._requests:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    answer, tokens = await bridge.embed(account, name, texts, is_query=is_query)
            except TimeoutError:
                detail = f"{account.provider} made no vectors within {self._timeout_seconds:g} s."
                raise ModelTimedOut(detail, transient=True) from None
        return _Batch(check_vectors(answer, len(texts)), tokens)

    async def _find_price(self, handle: str) -> Price | None:
        if self._prices is None:
            return None
        return await self._prices.find(ModelChoice(handle=handle, context_window=0))

    async def _load(self, account: Account) -> "EmbeddingBridge":
        if self._bridge is None or not self._bridge.is_loaded(account):
            async with self._loading:
                self._bridge = await load_in_thread(
                    _load_bridge, self._bridge, self._timeout_seconds, account
                )
        return self._bridge


def _load_bridge(
    bridge: "EmbeddingBridge | None", timeout_seconds: float, account: Account
) -> "EmbeddingBridge":
    if bridge is None:
        from holdfast.adapters.embedder.bridge import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
            EmbeddingBridge,
        )

        bridge = EmbeddingBridge(timeout_seconds)
    bridge.load(account)
    return bridge


def _split(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


async def _gather(asked: Sequence[Coroutine[Any, Any, _Batch]]) -> list[_Batch]:
    """The results of all; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in asked]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _remember(known: dict[str, int], handle: str, value: int) -> None:
    """The model that was learned about first is dropped first."""
    known[handle] = value
    while len(known) > _MAX_MODELS:
        del known[next(iter(known))]


def _refusal(handle: str) -> str:
    provider = handle.partition("/")[0]
    row = PROVIDERS.get(provider)
    if row is not None and not row.can_embed:
        return f"{provider} makes no vectors, so {handle} is no embedding model."
    hint = f" {row.setup_hint}" if row is not None else ""
    return f"No provider for the embedding model {handle} is configured.{hint}"
