"""The settings that every provider has, under pydantic-ai's names."""

from typing import TypeVar

from pydantic_ai.settings import ModelSettings

from holdfast.core.models import ModelSettings as Asked

S = TypeVar("S", bound=ModelSettings)


def with_basic_settings(settings: S, asked: Asked) -> S:
    if asked.max_output_tokens is not None:
        settings["max_tokens"] = asked.max_output_tokens
    if asked.temperature is not None:
        settings["temperature"] = asked.temperature
    if asked.frequency_penalty is not None:
        settings["frequency_penalty"] = asked.frequency_penalty
    return settings
