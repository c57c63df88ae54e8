"""Providers of models that users bring, with keys of their own (wire-v1 §2.10)."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from holdfast.core.paging import Page

# What the first part of a handle means when nobody has brought a provider of that name; nobody may.
RESERVED_NAMES: Final = frozenset(
    {
        "anthropic",
        "azure",
        "bedrock",
        "deepseek",
        "google_ai",
        "google_vertex",
        "groq",
        "holdfast",
        "lmstudio_openai",
        "mistral",
        "ollama",
        "openai",
        "openai-proxy",
        "openrouter",
        "together",
        "vllm",
        "xai",
    }
)

# The name is the first part of its models' handles.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,49}$"


class Keys(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must not be seen. ``access_key`` is the other half of a key that has two (AWS)."""

    api_key: str
    access_key: str | None = None

    def __repr__(self) -> str:
        return "Keys(…)"


class Provider(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    name: str
    # Which of the providers that Holdfast knows it is an account of.
    provider_type: str
    keys: Keys
    created_at: datetime
    updated_at: datetime
    base_url: str | None = None
    region: str | None = None
    api_version: str | None = None
    # When its keys were last seen to work.
    last_synced: datetime | None = None


class ProviderQuery(Struct, frozen=True, kw_only=True):
    """Which providers a list shows. Conditions combine with AND; None means any."""

    page: Page
    name: str | None = None
    provider_type: str | None = None


def names_user_provider(handle: str) -> bool:
    """Whether the model is one of a provider that a user brought, if there is such a one."""
    provider, slash, _ = handle.partition("/")
    return bool(slash) and provider not in RESERVED_NAMES
