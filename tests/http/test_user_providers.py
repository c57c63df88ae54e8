"""User providers: how many there may be, and that all are asked at once (wire-v1 §2.10)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from fastapi import FastAPI
from httpx import AsyncClient, Response
from tests.doubles.catalogue import FixedCatalogue
from tests.support.http_app import use_app

from holdfast.core.models import ModelInfo
from holdfast.core.providers import Provider
from holdfast.ports.model import Catalogue
from holdfast.ports.services import Services
from holdfast.usecases import providers


class BarrierCatalogue(FixedCatalogue):
    """No provider answers before all have been asked."""

    def __init__(self, all_asked: asyncio.Barrier) -> None:
        self._asked = all_asked
        self._provider: Provider | None = None

    def with_user_provider(self, provider: Provider) -> Catalogue:
        with_it = BarrierCatalogue(self._asked)
        with_it._provider = provider
        return with_it

    async def list_models(self) -> Sequence[ModelInfo]:
        if self._provider is None:
            return []
        async with asyncio.timeout(10):
            await self._asked.wait()
        (info, *_) = await super().list_models()
        return [
            ModelInfo(
                handle=f"{self._provider.name}/{info.name}",
                provider=self._provider.name,
                name=info.name,
                context_window=info.context_window,
                display_name=info.display_name,
                provider_type="anthropic",
            )
        ]


@pytest.fixture
async def app(services: Services) -> AsyncIterator[FastAPI]:
    with use_app(replace(services, catalogue=BarrierCatalogue(asyncio.Barrier(3)))) as app:
        yield app


async def _store(client: AsyncClient, name: str) -> Response:
    body = {"name": name, "provider_type": "anthropic", "api_key": "k"}
    return await client.post("/v1/providers/", json=body)


async def test_all_providers_are_asked_side_by_side(client: AsyncClient) -> None:
    for name in ("one", "two", "three"):
        assert (await _store(client, name)).status_code == 200

    found = (await client.get("/v1/models/")).json()

    assert {model["provider_name"] for model in found} == {"one", "two", "three"}


async def test_no_more_are_stored_than_are_asked(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "MAX_PROVIDERS", 1)
    assert (await _store(client, "one")).status_code == 200

    refused = await _store(client, "two")

    assert refused.status_code == 400
    assert "no more than that" in refused.text
