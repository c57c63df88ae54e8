"""Settings of the servers that the wire suites talk to, and the types of their fixtures."""

from collections.abc import Callable

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
