"""The model that the engine asks: the guide answers at once, everything else goes over the bridge.

This module is cheap to import. pydantic-ai and the SDKs are loaded when first needed, in a thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from holdfast.adapters.loading import loaded
from holdfast.adapters.models import brought, handles
from holdfast.adapters.models.guide import Guide
from holdfast.adapters.models.inquiry import Inquiry
from holdfast.adapters.models.sight import SAYS_IT, sees
from holdfast.core.messages import Image
from holdfast.errors import ModelError
from holdfast.ports.model import ModelEvent, Question

if TYPE_CHECKING:
    from holdfast.adapters.models.bridge import PydanticAiBridge

_Answering: TypeAlias = AbstractAsyncContextManager[AsyncIterator[ModelEvent]]

log = logging.getLogger(__name__)


class ModelRouter:
    def __init__(
        self,
        settings: handles.ProviderSettings,
        *,
        guide: Guide | None = None,
        inquiry: Inquiry | None = None,
    ) -> None:
        self._settings = settings
        self._inquiry = inquiry or Inquiry()
        self._guide = guide or Guide()
        self._bridge: PydanticAiBridge | None = None
        self._loading = asyncio.Lock()

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        choice = question.choice
        if choice.handle == handles.GUIDE_HANDLE:
            answering: _Answering = self._guide.ask(question)
        elif question.account is not None:
            account = brought.account_of(question.account, self._settings)
            known = replace(question, choice=brought.as_known(choice, question.account))
            answering = await self._over_the_bridge(known, account)
        else:
            account = self._settings.account(choice)
            answering = await self._over_the_bridge(question, account)
        async with answering as events:
            yield events

    async def _over_the_bridge(self, question: Question, account: handles.Account) -> _Answering:
        bridge = await self._load(account)
        return bridge.ask(question, account, sees=await self._sees(question, account))

    async def _sees(self, question: Question, account: handles.Account) -> bool:
        name = question.choice.name
        if account.provider not in SAYS_IT:
            return sees(name, None)
        if not _has_pictures(question):
            return True
        if self._inquiry.known(account.key) is None:
            await self._inquiry.ask([account])
        return sees(name, self._inquiry.known(account.key))

    async def warm(self) -> None:
        """Load every configured provider, for a start in the background."""
        for account in self._settings.accounts.values():
            try:
                await self._load(account)
            except ModelError as error:
                told = {"provider": account.provider, "error": str(error)}
                log.warning("model.not_loaded", extra=told)

    async def aclose(self) -> None:
        if self._bridge is not None:
            await self._bridge.aclose()

    async def _load(self, account: handles.Account) -> "PydanticAiBridge":
        if self._bridge is None or not self._bridge.has(account):
            async with self._loading:
                self._bridge = await loaded(_loaded, self._bridge, self._settings, account)
        return self._bridge


def _has_pictures(question: Question) -> bool:
    return any(
        isinstance(part, Image)
        for row in question.history
        for parts in (row.content, *(item.content for item in row.tool_returns))
        for part in parts
    )


def _loaded(
    bridge: "PydanticAiBridge | None", settings: handles.ProviderSettings, account: handles.Account
) -> "PydanticAiBridge":
    if bridge is None:
        from holdfast.adapters.models.bridge import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
            PydanticAiBridge,
        )

        bridge = PydanticAiBridge(settings)
    bridge.load(account)
    return bridge
