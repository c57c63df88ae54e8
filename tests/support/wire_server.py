"""Settings of the servers that the wire suites talk to, and the types of their fixtures."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from letta_client import DefaultHttpxClient, Letta
from letta_client.types import AgentState, Tool

from holdfast.testing import ScriptedProvider

MODELS = {"openai": "openai/gpt-4o-mini", "anthropic": "anthropic/claude-sonnet-4-5"}


CALLBACK_SECRET = "a secret between us"


MakeAgent = Callable[..., AgentState]


MakeTool = Callable[..., Tool]


def provider_variables(provider: ScriptedProvider) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "test",
        "OPENAI_BASE_URL": provider.openai_url,
        "ANTHROPIC_API_KEY": "test",
        "ANTHROPIC_BASE_URL": provider.url,
        # A test wants to see what becomes of the first failure.
        "HOLDFAST_MODEL_ATTEMPTS": "1",
    }


def variables(provider: ScriptedProvider) -> dict[str, str]:
    return provider_variables(provider) | {
        "HOLDFAST_ALLOWED_PRIVATE_HOSTS": "127.0.0.1",
        "HOLDFAST_CALLBACK_SECRET": CALLBACK_SECRET,
    }


class RandomServerTransport(httpx.HTTPTransport):
    """Sends each request to one of the servers, as a load balancer does. The choices are the same in each test run."""

    def __init__(self, addresses: Sequence[str]) -> None:
        # Certificates take longer to load than most tests.
        super().__init__(verify=False)
        self._urls = [httpx.URL(address) for address in addresses]
        self._chance = random.Random(0)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        chosen = self._chance.choice(self._urls)
        request.url = request.url.copy_with(host=chosen.host, port=chosen.port)
        return super().handle_request(request)


def connect(*addresses: str, **options: Any) -> Letta:
    """The official client. It does not try again by itself: a test wants to see the first answer."""
    given = {"max_retries": 0, "timeout": 60} | options
    http = DefaultHttpxClient(transport=RandomServerTransport(addresses))
    return Letta(base_url=addresses[0], http_client=http, **given)


def connect_plainly(*addresses: str, **options: Any) -> httpx.Client:
    """For what the official client cannot send."""
    given: dict[str, Any] = {"transport": RandomServerTransport(addresses), "timeout": 60} | options
    return httpx.Client(base_url=addresses[0], **given)
