"""The servers that speak OpenAI's chat completions, each with its own habits: one line per provider."""

from collections.abc import Callable
from typing import TypeAlias

from pydantic_ai.profiles import ModelProfile, merge_profile
from pydantic_ai.profiles.grok import GrokModelProfile, grok_model_profile
from pydantic_ai.profiles.groq import GroqModelProfile, groq_model_profile
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer, OpenAIModelProfile
from pydantic_ai.providers.azure import AzureProvider
from pydantic_ai.providers.deepseek import DeepSeekProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.providers.together import TogetherProvider
from pydantic_ai.providers.vllm import VLLMProvider

from holdfast.adapters.models.providers import table

Profile: TypeAlias = Callable[[str], ModelProfile | None]

# Older fields than OpenAI's own, which these servers still want.
_OLD_TOKEN_LIMIT = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)


def _groq_profile(name: str) -> ModelProfile | None:
    known: GroqModelProfile = groq_model_profile(name)  # type: ignore[assignment]  # made as one
    efforts = OpenAIModelProfile(
        openai_chat_thinking_field="reasoning", json_schema_transformer=OpenAIJsonSchemaTransformer
    )
    if known.get("groq_supports_graded_reasoning_effort"):
        efforts["openai_reasoning_efforts"] = frozenset({"low", "medium", "high"})
    elif known.get("groq_supports_reasoning_disable"):
        # These know "none" and "default", and no more.
        efforts["openai_reasoning_efforts"] = frozenset({"none"})
    return merge_profile(known, efforts)


def _xai_profile(name: str) -> ModelProfile | None:
    known: GrokModelProfile | None = grok_model_profile(name)  # type: ignore[assignment]  # made as one
    efforts = frozenset((known or {}).get("grok_reasoning_efforts", ()))
    more = OpenAIModelProfile(
        openai_reasoning_efforts=efforts, json_schema_transformer=OpenAIJsonSchemaTransformer
    )
    return merge_profile(known, more)


def _with_profile(profile: Profile, more: ModelProfile) -> Profile:
    return lambda name: merge_profile(profile(name), more)


PROFILES: dict[str, Profile] = {
    table.AZURE: AzureProvider.model_profile,
    table.GROQ: _groq_profile,
    table.XAI: _xai_profile,
    table.DEEPSEEK: _with_profile(DeepSeekProvider.model_profile, _OLD_TOKEN_LIMIT),
    table.TOGETHER: _with_profile(TogetherProvider.model_profile, _OLD_TOKEN_LIMIT),
    table.OLLAMA: _with_profile(OllamaProvider.model_profile, _OLD_TOKEN_LIMIT),
    table.LMSTUDIO: _with_profile(OpenAICompatibleProvider.model_profile, _OLD_TOKEN_LIMIT),
    table.VLLM: VLLMProvider.model_profile,
    table.OPENAI_PROXY: OpenAICompatibleProvider.model_profile,
}
