"""pydantic-ai's profiles: what it knows about a provider's models. Importing this module imports pydantic-ai."""

from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import TypeAlias, cast

from pydantic_ai.profiles import ModelProfile, merge_profile
from pydantic_ai.profiles.grok import GrokModelProfile, grok_model_profile
from pydantic_ai.profiles.groq import GroqModelProfile, groq_model_profile
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer, OpenAIModelProfile

from holdfast.adapters.models.providers.row import ProviderRow

Profile: TypeAlias = Callable[[str], ModelProfile | None]

_OLD_TOKEN_LIMIT = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)


def load_profile(row: ProviderRow) -> Profile:
    """The profile that the row names. Imports the provider's module of pydantic-ai."""
    module, _, path = row.profile.partition(":")
    profile = cast("Profile", reduce(getattr, path.split("."), import_module(module)))
    if row.has_old_token_limit:
        return lambda name: merge_profile(profile(name), _OLD_TOKEN_LIMIT)
    return profile


def groq_profile(name: str) -> ModelProfile | None:
    known: GroqModelProfile = groq_model_profile(name)  # type: ignore[assignment]  # made as one
    efforts = OpenAIModelProfile(
        openai_chat_thinking_field="reasoning", json_schema_transformer=OpenAIJsonSchemaTransformer
    )
    if known.get("groq_supports_graded_reasoning_effort"):
        efforts["openai_reasoning_efforts"] = frozenset({"low", "medium", "high"})
    elif known.get("groq_supports_reasoning_disable"):
        # These models take only "none" and "default".
        efforts["openai_reasoning_efforts"] = frozenset({"none"})
    return merge_profile(known, efforts)


def xai_profile(name: str) -> ModelProfile | None:
    known: GrokModelProfile | None = grok_model_profile(name)  # type: ignore[assignment]  # made as one
    efforts = frozenset((known or {}).get("grok_reasoning_efforts", ()))
    more = OpenAIModelProfile(
        openai_reasoning_efforts=efforts, json_schema_transformer=OpenAIJsonSchemaTransformer
    )
    return merge_profile(known, more)
