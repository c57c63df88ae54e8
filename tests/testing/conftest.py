"""A running scripted provider, and every client that is to be pleased with it. None loads certificates: that is slow."""

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

from holdfast.testing import ScriptedProvider


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider(
        default="Hello from the scripted provider.", check_script=False
    ) as running:
        yield running


@pytest.fixture
async def openai_client(provider: ScriptedProvider) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=provider.openai_url,
        api_key="sk-test",
        max_retries=0,
        timeout=20,
        http_client=openai.DefaultAsyncHttpxClient(verify=False),
    ) as client:
        yield client


@pytest.fixture
async def anthropic_client(provider: ScriptedProvider) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=provider.url,
        api_key="sk-test",
        max_retries=0,
        timeout=20,
        http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
    ) as client:
        yield client


@pytest.fixture
async def google_client(provider: ScriptedProvider) -> AsyncIterator[genai.Client]:
    options = HttpOptions(
        base_url=provider.url,
        timeout=20_000,
        client_args={"verify": False},
        async_client_args={"verify": False},
    )
    client = genai.Client(api_key="sk-test", http_options=options)
    yield client
    await client.aio.aclose()


@pytest.fixture(params=["openai-chat", "openai-responses", "anthropic", "google"])
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def model(
    wire: str,
    openai_client: openai.AsyncOpenAI,
    anthropic_client: anthropic.AsyncAnthropic,
    google_client: genai.Client,
) -> Model:
    """A pydantic-ai model on each wire in turn."""
    if wire == "google":
        return GoogleModel("gemini-scripted", provider=GoogleProvider(client=google_client))
    if wire == "anthropic":
        return AnthropicModel(
            "claude-scripted", provider=AnthropicProvider(anthropic_client=anthropic_client)
        )
    provider = OpenAIProvider(openai_client=openai_client)
    if wire == "openai-chat":
        return OpenAIChatModel("gpt-4o", provider=provider)
    return OpenAIResponsesModel("gpt-5", provider=provider)
