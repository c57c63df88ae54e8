"""What providers publish about their models: context windows, dimensions, and what a model's name says about it.

A provider's other models work too: they are only not known here.
"""

import re
from collections.abc import Mapping
from typing import Final

# Context windows in tokens, as the providers publish them.
_CONTEXT_WINDOWS: Final[dict[str, dict[str, int]]] = {
    "anthropic": {
        "claude-haiku-4-5": 200_000,
        "claude-haiku-5-5": 1_000_000,
        "claude-opus-4-1": 200_000,
        "claude-opus-4-5": 200_000,
        "claude-opus-4-6": 1_000_000,
        "claude-opus-4-7": 1_000_000,
        "claude-opus-4-8": 1_000_000,
        "claude-opus-5": 1_000_000,
        "claude-opus-5-5": 1_000_000,
        "claude-sonnet-4-5": 200_000,
        "claude-sonnet-4-6": 1_000_000,
        "claude-sonnet-5": 1_000_000,
        "claude-sonnet-5-5": 1_000_000,
    },
    "google_ai": {
        "gemini-2.5-flash": 1_048_576,
        "gemini-2.5-flash-lite": 1_000_000,
        "gemini-2.5-pro": 1_048_576,
        "gemini-3-flash-preview": 1_000_000,
        "gemini-3-pro-preview": 1_000_000,
        "gemini-3.1-flash-lite": 1_000_000,
        "gemini-3.1-pro-preview": 1_000_000,
        "gemini-3.5-flash": 1_000_000,
        "gemini-3.5-flash-lite": 1_000_000,
        "gemini-3.6-flash": 1_000_000,
        "gemini-3.7-flash": 1_000_000,
        "gemini-3.8-flash": 1_000_000,
        "gemini-4-argon": 1_048_576,
    },
    "openai": {
        "gpt-3.5-turbo": 16_385,
        "gpt-4": 8_192,
        "gpt-4-turbo": 128_000,
        "gpt-4.1": 1_000_000,
        "gpt-4.1-mini": 1_000_000,
        "gpt-4.1-nano": 1_000_000,
        "gpt-4o": 128_000,
        "gpt-4o-mini": 128_000,
        "gpt-5": 400_000,
        "gpt-5-mini": 400_000,
        "gpt-5-nano": 400_000,
        "gpt-5.1": 400_000,
        "gpt-5.2": 400_000,
        "gpt-5.4": 1_050_000,
        "gpt-5.4-mini": 400_000,
        "gpt-5.4-nano": 400_000,
        "gpt-5.5": 1_000_000,
        "gpt-5.6-luna": 1_050_000,
        "gpt-5.6-sol": 1_050_000,
        "gpt-5.6-terra": 1_050_000,
        "gpt-6-astra": 1_050_000,
        "gpt-6-luna": 1_050_000,
        "gpt-6-sol": 1_050_000,
        "gpt-6.1-sol": 1_050_000,
        "gpt-6.1-terra": 1_050_000,
        "o1": 200_000,
        "o3": 200_000,
        "o3-mini": 200_000,
        "o4-mini": 200_000,
    },
}

_EMBEDDING_DIMENSIONS: Final[dict[str, dict[str, int]]] = {
    "openai": {
        "text-embedding-3-large": 3072,
        "text-embedding-3-small": 1536,
        "text-embedding-ada-002": 1536,
    },
    "google_ai": {"gemini-embedding-001": 3072, "gemini-embedding-2": 3072},
    "google_vertex": {
        "gemini-embedding-001": 3072,
        "text-embedding-005": 768,
        "text-multilingual-embedding-002": 768,
    },
    "bedrock": {
        "amazon.titan-embed-text-v1": 1536,
        "amazon.titan-embed-text-v2:0": 1024,
        "cohere.embed-english-v3": 1024,
        "cohere.embed-multilingual-v3": 1024,
        "cohere.embed-v4:0": 1536,
    },
    "mistral": {"mistral-embed": 1024},
}

# OpenAI's reasoning models: the o-series, and gpt-5 and all that came after it.
_REASONING_MODEL = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d))(?!.*-chat)")

# Families of models without image support; members that do have it say so in their names.
_WITH_IMAGES = re.compile(r"vision|multimodal|omni|vl\b|-vl-|llava|3\.2-(11|90)b|ocr")
_WITHOUT_IMAGES = re.compile(
    r"gpt-3\.5"
    r"|gpt-4(-\d{4}|-32k.*|-(1106|0125|turbo)-preview)?$"
    r"|gpt-oss|o1-mini|o1-preview|o3-mini"
    r"|claude-(2|instant)"
    r"|deepseek-?(chat|reasoner|coder|llm|r\d|v\d)"
    r"|(code|tiny)llama|llama-?[23](?!\d)"
    r"|mixtral|codestral|mathstral|open-mistral|mistral-(tiny|7b)|mistral-large-24"
    r"|qwen-?(1\.5|2|2\.5|3)(?![.\d])|qwq"
    r"|phi-?[234](?!\d)|gemma-?2(?!\d)|gemma(:|-\db)"
    r"|grok-(beta|2|3|code)"
    r"|nova-micro|titan-text|command-(r|light|text|a)|jamba"
    r"|kimi-k2(?![.\d])|glm-[45](\.\d)?(?![.\dv])|minimax-m[12]"
)


def published_windows(provider: str) -> Mapping[str, int]:
    """The context windows of the provider's models, by name."""
    return _CONTEXT_WINDOWS.get(provider, {})


def published_window(provider: str, name: str) -> int | None:
    """The context window of a model, or of the one that its name is a dated edition of."""
    windows = published_windows(provider)
    stem = name
    while stem:
        if stem in windows:
            return windows[stem]
        stem = stem.rpartition("-")[0]
    return None


def published_dimensions(provider: str) -> Mapping[str, int]:
    """The dimensions of the provider's embedding models, by name."""
    return _EMBEDDING_DIMENSIONS.get(provider, {})


def is_reasoning_model(name: str) -> bool:
    """Whether OpenAI's model of this name reasons. Such a model is asked with responses, which return its encrypted
    thinking from one call to the next; the others with chat completions, which every compatible server speaks."""
    return _REASONING_MODEL.match(name) is not None


def name_allows_images(name: str) -> bool:
    """Whether nothing in the model's name says that it accepts no images."""
    stem = name.lower().removeprefix("ft:").rpartition("/")[2]
    return _WITHOUT_IMAGES.search(stem) is None or _WITH_IMAGES.search(stem) is not None
