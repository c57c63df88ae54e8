"""The thinking level that was asked for, as pydantic-ai takes it."""

from typing import cast

from pydantic_ai.settings import ThinkingEffort

from holdfast.core.models import ModelSettings as Asked

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")


def thinking_level(asked: Asked) -> bool | ThinkingEffort | None:
    """None leaves it to the provider. pydantic-ai sends a level only to reasoning models."""
    if asked.thinking is False or asked.reasoning_effort == "none":
        return False
    if asked.reasoning_effort in _EFFORTS:
        return cast("ThinkingEffort", asked.reasoning_effort)
    return asked.thinking
