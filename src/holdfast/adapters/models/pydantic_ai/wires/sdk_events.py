"""Events of an SDK's own classes, made without its checks: for the events that come once per token."""

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def build_unchecked(kind: type[M], **fields: Any) -> M:
    """An object that has just these attributes. Nothing is checked, nothing else is set."""
    event = kind.__new__(kind)
    object.__setattr__(event, "__dict__", fields)
    return event
