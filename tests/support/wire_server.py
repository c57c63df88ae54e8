"""Settings of the servers that the wire suites talk to, and the types of their fixtures."""

from collections.abc import Callable
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


def connect(address: str, **options: Any) -> Letta:
    """The official client. It does not try again by itself: a test wants to see the first answer.

    It loads no certificates, which takes longer than most tests.
    """
    given = {"max_retries": 0, "timeout": 60} | options
    return Letta(base_url=address, http_client=DefaultHttpxClient(verify=False), **given)


def connect_plainly(address: str, **options: Any) -> httpx.Client:
    """For what the official client cannot send."""
    return httpx.Client(base_url=address, timeout=60, verify=False, **options)
