"""pydantic-ai's provider for OpenAI or a compatible server, with our own client."""

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.providers.profiles import load_profile
from holdfast.adapters.models.pydantic_ai.wires.openai_client import build_direct_client


def build_openai_provider(account: Account, http: httpx2.AsyncClient) -> Provider[AsyncOpenAI]:
    client = build_direct_client(account, http)
    if account.provider == "openai":
        return OpenAIProvider(openai_client=client)
    profile = load_profile(account.row)
    return OpenAICompatibleProvider(account.provider, openai_client=client, profile=profile)


def schema_profile(*, strict: bool) -> OpenAIModelProfile | None:
    """Only strict schemas need rewriting, and rewriting costs 0.1 ms per tool and request."""
    return None if strict else OpenAIModelProfile(json_schema_transformer=None)
