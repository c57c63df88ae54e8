"""Prices of models: from genai-prices, or unknown."""

from itertools import product

import pytest
from genai_prices import Usage as GenaiUsage
from genai_prices.data_snapshot import get_snapshot
from msgspec.structs import replace

from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.core.models import ModelChoice
from holdfast.core.runs import Usage
from holdfast.testing import FakeClock

OWN_ADDRESSES = {"openai": None, "anthropic": None, "google_ai": None}


def choice(handle: str) -> ModelChoice:
    return ModelChoice(handle=handle, context_window=128_000)


@pytest.mark.parametrize(
    "handle",
    [
        "groq/llama-3.3-70b-versatile",
        "mistral/mistral-large-latest",
        "xai/grok-4",
        "deepseek/deepseek-chat",
        "openrouter/openai/gpt-4o-mini",
        "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
        "google_vertex/gemini-2.5-pro",
    ],
)
async def test_providers_are_known_by_the_names_that_handles_have(handle: str) -> None:
    provider = handle.partition("/")[0]

    assert await GenaiPrices({provider: None}, FakeClock()).find(choice(handle)) is not None


@pytest.mark.parametrize(
    ("handle", "provider"),
    [
        ("openai/gpt-4o-mini", "openai"),
        ("openai/gpt-5", "openai"),
        ("anthropic/claude-sonnet-4-5", "anthropic"),
        ("anthropic/claude-haiku-4-5", "anthropic"),
        # Long prompts cost more.
        ("google_ai/gemini-2.5-pro", "google"),
    ],
)
async def test_a_known_model_costs_what_the_collection_says(handle: str, provider: str) -> None:
    clock = FakeClock()
    price = await GenaiPrices(OWN_ADDRESSES, clock).find(choice(handle))
    _, model = get_snapshot().find_provider_model(choice(handle).name, None, provider, None)
    table = model.get_prices(clock.now())

    assert price is not None
    for prompt, share, output in product((0, 7, 200_000, 200_001, 999_999), (0, 3), (0, 1, 5_001)):
        read, write = prompt * share // 10, prompt * share // 7
        theirs = GenaiUsage(
            input_tokens=prompt,
            cache_read_tokens=read,
            cache_write_tokens=write,
            output_tokens=output,
        )
        dollars = table.calc_price(theirs)["total_price"]
        assert abs(price.cost(Usage(prompt, output, read, write)) - dollars * 10**9) <= 0.5


async def test_what_is_not_known_is_not_guessed() -> None:
    prices = GenaiPrices(OWN_ADDRESSES, FakeClock())

    assert await prices.find(choice("openai/a-model-of-my-own")) is None
    assert await prices.find(choice("holdfast/guide")) is None


async def test_another_server_that_speaks_the_same_api_has_no_known_price() -> None:
    """It may be a local model. A provider that genai-prices knows by its URL has its own prices."""
    local = GenaiPrices({"openai": "http://127.0.0.1:11434/v1"}, FakeClock())
    groq = GenaiPrices({"openai": "https://api.groq.com/openai/v1"}, FakeClock())

    assert await local.find(choice("openai/gpt-4o-mini")) is None
    elsewhere = replace(choice("openai/gpt-4o-mini"), endpoint="https://models.example/v1")
    assert await GenaiPrices(OWN_ADDRESSES, FakeClock()).find(elsewhere) is None
    assert await groq.find(choice("openai/llama-3.3-70b-versatile")) is not None
