"""The catalogue: which models it has, and the errors for unknown ones."""

import subprocess
import sys
from collections.abc import Iterable

import pytest

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.models import GUIDE_PROVIDER
from holdfast.errors import InvalidArgument, UnknownModel

NOTHING = ProviderSettings()
BOTH = ProviderSettings({"openai": {"api_key": "sk-one"}, "anthropic": {"api_key": "sk-two"}})


class NoDiscovery(ModelDiscovery):
    """A catalogue that sends no requests and uses the published data."""

    async def refresh(self, accounts: Iterable[Account]) -> None: ...


def _catalogue(settings: ProviderSettings) -> ProviderCatalogue:
    return ProviderCatalogue(settings, discovery=NoDiscovery())


async def _handles(settings: ProviderSettings) -> list[str]:
    return [model.handle for model in await _catalogue(settings).list_models()]


async def test_without_any_key_there_is_the_guide() -> None:
    catalogue = ProviderCatalogue(NOTHING)
    assert await _handles(NOTHING) == ["holdfast/guide"]
    assert catalogue.find("holdfast/guide").provider == "holdfast"
    assert list(await catalogue.list_embeddings()) == []


async def test_a_key_brings_the_models_of_its_provider() -> None:
    handles = await _handles(ProviderSettings({"anthropic": {"api_key": "sk-two"}}))
    assert "anthropic/claude-haiku-4-5" in handles
    assert not [handle for handle in handles if handle.startswith("openai/")]
    assert "openai/gpt-4o" in await _handles(BOTH)
    assert "google_ai/gemini-2.5-flash" in await _handles(
        ProviderSettings({"google_ai": {"api_key": "three"}})
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_server_on_this_machine_needs_no_key(host: str) -> None:
    settings = ProviderSettings({"openai": {"base_url": f"http://{host}:11434/v1"}})
    assert ProviderCatalogue(settings).find("openai/llama").name == "llama"


def test_a_server_elsewhere_needs_a_key() -> None:
    settings = ProviderSettings({"openai": {"base_url": "https://models.example/v1"}})
    assert "openai" not in settings.providers


def test_a_model_that_is_not_listed_is_found_all_the_same() -> None:
    found = ProviderCatalogue(BOTH).find("openai/gpt-99-turbo/preview")
    assert (found.name, found.context_window) == ("gpt-99-turbo/preview", 128_000)


@pytest.mark.parametrize(
    ("handle", "window"),
    [
        ("openai/gpt-4o", 128_000),
        ("openai/gpt-4-0613", 8_192),
        ("openai/gpt-5-2025-08-07", 400_000),
        ("anthropic/claude-haiku-4-5-20251001", 200_000),
    ],
)
def test_a_dated_edition_has_the_window_of_its_model(handle: str, window: int) -> None:
    assert ProviderCatalogue(BOTH).find(handle).context_window == window


def test_a_provider_that_is_not_configured_is_refused_with_a_hint() -> None:
    with pytest.raises(UnknownModel) as raised:
        ProviderCatalogue(NOTHING).find("anthropic/claude-haiku-4-5")
    message = str(raised.value)
    assert message.startswith(
        "Handle anthropic/claude-haiku-4-5 not found, must be one of [holdfast/guide]"
    )
    assert "ANTHROPIC_API_KEY" in message


@pytest.mark.parametrize("handle", ["nobody/knows", "holdfast/other"])
def test_an_unknown_provider_is_refused(handle: str) -> None:
    with pytest.raises(UnknownModel, match=f"Handle {handle} not found, must be one of"):
        ProviderCatalogue(BOTH).find(handle)


@pytest.mark.parametrize("handle", ["gpt-4o", "/gpt-4o", "openai/", ""])
def test_a_handle_has_two_sides(handle: str) -> None:
    expected = "The model handle should be in the format provider/model-name"
    with pytest.raises(InvalidArgument, match=expected):
        ProviderCatalogue(BOTH).find(handle)


async def test_embeddings_come_with_openai() -> None:
    found = await _catalogue(BOTH).list_embeddings()
    dimensions = {model.name: model.dimensions for model in found}
    assert dimensions == {
        "text-embedding-3-large": 3072,
        "text-embedding-3-small": 1536,
        "text-embedding-ada-002": 1536,
    }


async def test_a_known_embedding_is_found_whether_configured_or_not() -> None:
    found = await ProviderCatalogue(NOTHING).find_embedding("openai/text-embedding-3-small")
    assert found is not None
    assert found.dimensions == 1536
    assert await _catalogue(BOTH).find_embedding("openai/unheard-of") is None
    assert await _catalogue(NOTHING).find_embedding("letta/letta-free") is None


def test_the_default_is_the_operators() -> None:
    assert ProviderCatalogue(NOTHING).default_handle() is None
    assert ProviderCatalogue(NOTHING, default="holdfast/guide").default_handle() == "holdfast/guide"


def test_keys_do_not_show() -> None:
    assert "sk-one" not in repr(BOTH)
    assert "sk-one" not in repr(BOTH.accounts)


@pytest.mark.slow
def test_the_start_of_the_server_does_not_wait_for_the_sdks() -> None:
    program = (
        "import sys, holdfast.adapters.models.router, holdfast.adapters.models.catalogue;"
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic', 'google.genai', 'httpx2', 'numpy') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [*PROVIDERS, GUIDE_PROVIDER, "local"])
def test_the_name_of_a_known_provider_is_reserved(name: str) -> None:
    assert _catalogue(NOTHING).is_reserved(name)
    assert not _catalogue(NOTHING).is_reserved(f"my-{name}")
