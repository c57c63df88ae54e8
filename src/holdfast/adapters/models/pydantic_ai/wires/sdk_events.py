"""Builds events of an SDK's classes without validation, for those that come once per token."""

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def build_unchecked(kind: type[M], **fields: Any) -> M:
    """An object with just these attributes, without validation and defaults."""
    event = kind.__new__(kind)
    object.__setattr__(event, "__dict__", fields)
    return event
