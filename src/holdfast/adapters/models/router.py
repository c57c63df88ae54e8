"""The model that the engine asks: the guide answers at once, everything else goes over the bridge.

This module is cheap to import. pydantic-ai and the SDKs are loaded when first needed, in a thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.adapters.loading import loaded
from holdfast.adapters.models import brought, handles
from holdfast.adapters.models.guide import Guide
from holdfast.errors import ModelError
from holdfast.ports.model import ModelEvent, Question

if TYPE_CHECKING:
    from holdfast.adapters.models.bridge import PydanticAiBridge

log = logging.getLogger(__name__)


class ModelRouter:
    def __init__(self, settings: handles.ProviderSettings, *, guide: Guide | None = None) -> None:
        self._settings = settings
        self._guide = guide or Guide()
        self._bridge: PydanticAiBridge | None = None
        self._loading = asyncio.Lock()

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        choice = question.choice
        if choice.handle == handles.GUIDE_HANDLE:
            answering = self._guide.ask(question)
        elif question.account is not None:
            account = brought.account_of(question.account, self._settings)
            known = replace(question, choice=brought.as_known(choice, question.account))
            answering = (await self._load(account)).ask(known, account)
        else:
            account = self._settings.account(choice)
            answering = (await self._load(account)).ask(question, account)
        async with answering as events:
            yield events

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
