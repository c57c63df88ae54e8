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

from holdfast.adapters.models import providers

Profile: TypeAlias = Callable[[str], ModelProfile | None]

# Older fields than OpenAI's own, which these servers still want.
_OLD_LIMIT = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)


def _groq(name: str) -> ModelProfile | None:
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


def _xai(name: str) -> ModelProfile | None:
    known: GrokModelProfile | None = grok_model_profile(name)  # type: ignore[assignment]  # made as one
    efforts = frozenset((known or {}).get("grok_reasoning_efforts", ()))
    more = OpenAIModelProfile(
        openai_reasoning_efforts=efforts, json_schema_transformer=OpenAIJsonSchemaTransformer
    )
    return merge_profile(known, more)


def _with(profile: Profile, more: ModelProfile) -> Profile:
    return lambda name: merge_profile(profile(name), more)


PROFILES: dict[str, Profile] = {
    providers.AZURE: AzureProvider.model_profile,
    providers.GROQ: _groq,
    providers.XAI: _xai,
    providers.DEEPSEEK: _with(DeepSeekProvider.model_profile, _OLD_LIMIT),
    providers.TOGETHER: _with(TogetherProvider.model_profile, _OLD_LIMIT),
    providers.OLLAMA: _with(OllamaProvider.model_profile, _OLD_LIMIT),
    providers.LMSTUDIO: _with(OpenAICompatibleProvider.model_profile, _OLD_LIMIT),
    providers.VLLM: VLLMProvider.model_profile,
    providers.OPENAI_PROXY: OpenAICompatibleProvider.model_profile,
}
