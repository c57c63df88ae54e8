"""The model that the engine asks: the guide, or a provider over pydantic-ai.

This module is cheap to import. pydantic-ai and the SDKs are loaded when first needed, in a thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from holdfast.adapters.models import user_providers
from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.guide.model import Guide
from holdfast.adapters.models.image_support import supports_images
from holdfast.core.messages import Image
from holdfast.core.models import GUIDE_HANDLE
from holdfast.errors import ModelError
from holdfast.loading import load_in_thread
from holdfast.ports.model import ModelEvent, Question

if TYPE_CHECKING:
    from holdfast.adapters.models.pydantic_ai.bridge import PydanticAiBridge

_AnswerContext: TypeAlias = AbstractAsyncContextManager[AsyncIterator[ModelEvent]]

log = logging.getLogger(__name__)


class ModelRouter:
    def __init__(
        self,
        settings: ProviderSettings,
        *,
        guide: Guide | None = None,
        discovery: ModelDiscovery | None = None,
    ) -> None:
        self._settings = settings
        self._discovery = discovery or ModelDiscovery()
        self._guide = guide or Guide()
        self._bridge: PydanticAiBridge | None = None
        self._loading = asyncio.Lock()

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        choice = question.choice
        if choice.handle == GUIDE_HANDLE:
            answer: _AnswerContext = self._guide.ask(question)
        elif question.account is not None:
            account = user_providers.build_account(question.account, self._settings)
            typed = replace(
                question, choice=user_providers.with_provider_type(choice, question.account)
            )
            answer = await self._ask_provider(typed, account)
        else:
            account = self._settings.find_account(choice)
            answer = await self._ask_provider(question, account)
        async with answer as events:
            yield events

    async def _ask_provider(self, question: Question, account: Account) -> _AnswerContext:
        bridge = await self._load(account)
        return bridge.ask(
            question, account, supports_images=await self._supports_images(question, account)
        )

    async def _supports_images(self, question: Question, account: Account) -> bool:
        name = question.choice.name
        if not account.row.lists_image_support:
            return supports_images(name, None)
        if not _has_images(question):
            return True
        if self._discovery.last_list(account.cache_key) is None:
            await self._discovery.refresh([account])
        return supports_images(name, self._discovery.last_list(account.cache_key))

    async def warm_up(self) -> None:
        """Load the SDKs of every configured provider."""
        for account in self._settings.accounts.values():
            try:
                await self._load(account)
            except ModelError as error:
                fields = {"provider": account.provider, "error": str(error)}
                log.warning("model.not_loaded", extra=fields)

    async def aclose(self) -> None:
        if self._bridge is not None:
            await self._bridge.aclose()

    async def _load(self, account: Account) -> "PydanticAiBridge":
        if self._bridge is None or not self._bridge.is_loaded(account):
            async with self._loading:
                self._bridge = await load_in_thread(
                    _load_bridge, self._bridge, self._settings, account
                )
        return self._bridge


def _has_images(question: Question) -> bool:
    return any(
        isinstance(part, Image)
        for row in question.history
        for parts in (row.content, *(item.content for item in row.tool_returns))
        for part in parts
    )


def _load_bridge(
    bridge: "PydanticAiBridge | None", settings: ProviderSettings, account: Account
) -> "PydanticAiBridge":
    if bridge is None:
        from holdfast.adapters.models.pydantic_ai.bridge import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
            PydanticAiBridge,
        )

        bridge = PydanticAiBridge(settings)
    bridge.load(account)
    return bridge
