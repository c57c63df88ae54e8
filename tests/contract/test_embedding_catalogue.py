"""Which embedding models there are: listed, published, installed; their dimensions are never invented."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from tests.support import tiny_bert

from holdfast.adapters.embedder.catalogue import EmbeddingCatalogue
from holdfast.adapters.embedder.local.models import LocalModels
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.discovery.discovery import FAILED_FRESH_SECONDS, ModelDiscovery
from holdfast.testing import HttpError, NoAnswer, ScriptedProvider


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    models = ("chat-model", "bge-m3", "nomic-embed-text")
    async with ScriptedProvider(models=models, check_script=False) as running:
        running.embeddings.dimensions = 48
        yield running


class Catalogue:
    def __init__(self, settings: ProviderSettings, local: LocalModels | None = None) -> None:
        self.now = 1_000.0
        self.embedder = EmbedderRouter(settings, local=local or LocalModels({}))
        self.catalogue = EmbeddingCatalogue(
            settings, ModelDiscovery(), self.embedder, now=lambda: self.now
        )

    async def list_all(self) -> dict[str, int]:
        return {info.handle: info.dimensions for info in await self.catalogue.list_all()}

    async def find(self, handle: str) -> int | None:
        found = await self.catalogue.find(handle)
        return None if found is None else found.dimensions


def own_server(provider: ScriptedProvider) -> ProviderSettings:
    return ProviderSettings({"vllm": {"base_url": provider.url}})


async def test_a_server_that_does_not_say_its_dimensions_is_measured_once(
    provider: ScriptedProvider,
) -> None:
    catalogue = Catalogue(own_server(provider))
    assert await catalogue.list_all() == {"vllm/bge-m3": 48, "vllm/nomic-embed-text": 48}
    assert await catalogue.find("vllm/bge-m3") == 48
    await catalogue.list_all()
    assert len(provider.embeddings.requests) == 2


async def test_one_that_cannot_be_measured_is_left_out_and_asked_again_later(
    provider: ScriptedProvider,
) -> None:
    catalogue = Catalogue(own_server(provider))
    provider.embeddings.default = HttpError(500)
    assert await catalogue.list_all() == {}
    provider.embeddings.reset()
    assert await catalogue.list_all() == {}
    assert provider.embeddings.requests == []
    catalogue.now += FAILED_FRESH_SECONDS
    assert len(await catalogue.list_all()) == 2


async def test_one_that_is_silent_does_not_hold_up_the_list(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.embedder.catalogue.TIMEOUT_SECONDS", 0.3)
    provider.embeddings.default = NoAnswer()
    assert await Catalogue(own_server(provider)).list_all() == {}


async def test_a_model_that_the_server_does_not_list_is_not_asked(
    provider: ScriptedProvider,
) -> None:
    catalogue = Catalogue(own_server(provider))
    assert await catalogue.find("vllm/unheard-of") is None
    # It may make vectors although its name does not say so.
    assert await catalogue.find("vllm/chat-model") == 48
    assert len(provider.embeddings.requests) == 1


async def test_what_is_published_needs_no_request() -> None:
    catalogue = Catalogue(ProviderSettings({"openai": {"api_key": "key"}}))
    assert await catalogue.find("openai/text-embedding-3-large") == 3072
    assert await Catalogue(ProviderSettings()).find("openai/text-embedding-ada-002") == 1536
    assert await Catalogue(ProviderSettings()).find("letta/letta-free") is None


async def test_a_provider_that_charges_is_not_asked_for_a_vector() -> None:
    class Unlisted(ModelDiscovery):
        async def refresh(self, accounts: Iterable[Account]) -> None: ...

    class Silent(EmbedderRouter):
        async def prepare(self, handle: str) -> None:
            raise AssertionError(handle)

    settings = ProviderSettings({"together": {"api_key": "key"}})
    catalogue = EmbeddingCatalogue(settings, Unlisted(), Silent(settings, local=LocalModels({})))
    assert await catalogue.find("together/some-embedding") is None
    assert await catalogue.list_all() == []


async def test_a_provider_without_embeddings_has_none(provider: ScriptedProvider) -> None:
    settings = ProviderSettings({"anthropic": {"api_key": "key", "base_url": provider.url}})
    catalogue = Catalogue(settings)
    assert await catalogue.list_all() == {}
    assert await catalogue.find("anthropic/bge-m3") is None
    assert provider.embeddings.requests == []


async def test_the_installed_models_are_listed_among_the_others_by_handle(
    provider: ScriptedProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = ProviderSettings(
        {"vllm": {"base_url": provider.url}, "bedrock": {"region": "x", "api_key": "key"}}
    )
    local = {"tiny": tiny_bert.MODEL}
    assert "local/tiny" not in await Catalogue(settings, LocalModels(local)).list_all()
    tiny_bert.write_package(tmp_path)
    catalogue = Catalogue(settings, LocalModels(local))
    listed = await catalogue.list_all()
    assert listed["local/tiny"] == tiny_bert.SIZE
    assert list(listed) == sorted(listed)
    assert listed["bedrock/cohere.embed-multilingual-v3"] == 1024
    assert await catalogue.find("local/tiny") == tiny_bert.SIZE
    assert await catalogue.find("local/other") is None
