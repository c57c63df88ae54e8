"""OpenAI's provider for pydantic-ai, or that of a server that speaks alike; over our own client."""

from importlib import import_module

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.providers.table import OPENAI, OPENAI_PROXY
from holdfast.adapters.models.pydantic_ai.wires.openai_client import build_direct_client


def build_openai_provider(account: Account, http: httpx2.AsyncClient) -> Provider[AsyncOpenAI]:
    client = build_direct_client(account, http)
    if account.provider == OPENAI:
        return OpenAIProvider(openai_client=client)
    if account.provider == OPENAI_PROXY:
        return OpenAICompatibleProvider(account.provider, openai_client=client)
    # Imported when one of them is configured: together they take a megabyte.
    habits = import_module("holdfast.adapters.models.pydantic_ai.wires.compatible_profiles")
    profile = habits.PROFILES.get(account.provider)
    return OpenAICompatibleProvider(account.provider, openai_client=client, profile=profile)
