"""The model that the engine asks: the guide answers at once, everything else goes over the bridge.

This module is cheap to import. pydantic-ai and the SDKs are loaded when first needed, in a thread.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.models import handles
from holdfast.adapters.models.guide import Guide
from holdfast.core.models import ModelChoice
from holdfast.ports.model import ModelEvent, Question

if TYPE_CHECKING:
    from holdfast.adapters.models.bridge import PydanticAiBridge


class ModelRouter:
    def __init__(self, settings: handles.ProviderSettings, *, guide: Guide | None = None) -> None:
        self._settings = settings
        self._accounts = settings.accounts
        self._guide = guide or Guide()
        self._bridge: PydanticAiBridge | None = None
        self._ready: set[str] = set()
        self._loading = asyncio.Lock()

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        choice = question.choice
        if choice.handle == handles.GUIDE_HANDLE:
            answering = self._guide.ask(question)
        else:
            answering = (await self._bridge_for(choice)).ask(question)
        async with answering as events:
            yield events

    async def ready(self, choice: ModelChoice) -> None:
        if choice.handle != handles.GUIDE_HANDLE:
            await self._bridge_for(choice)

    async def warm(self) -> None:
        """Load every configured provider, for a start in the background."""
        for provider in self._accounts:
            await self._load(provider)

    async def aclose(self) -> None:
        if self._bridge is not None:
            await self._bridge.aclose()

    async def _bridge_for(self, choice: ModelChoice) -> "PydanticAiBridge":
        provider, _ = handles.split(choice.handle)
        if provider not in self._accounts:
            raise handles.unknown(
                choice.handle, sorted(f"{name}/…" for name in self._settings.providers)
            )
        return await self._load(provider)

    async def _load(self, provider: str) -> "PydanticAiBridge":
        if self._bridge is None or provider not in self._ready:
            async with self._loading:
                self._bridge = await asyncio.to_thread(
                    _loaded, self._bridge, self._settings, provider
                )
                self._ready.add(provider)
        return self._bridge


def _loaded(
    bridge: "PydanticAiBridge | None", settings: handles.ProviderSettings, provider: str
) -> "PydanticAiBridge":
    if bridge is None:
        from holdfast.adapters.models.bridge import (  # noqa: PLC0415 - pydantic-ai takes 0.7 s to import
            PydanticAiBridge,
        )

        bridge = PydanticAiBridge(settings)
    bridge.load(provider)
    return bridge
