"""Who calls, what the call may use, and what it answers."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.ports.services import Services


class Caller(Struct, frozen=True, kw_only=True):
    services: Services
    actor: Actor
    # An agent, of this server or another, rather than a client of a person.
    is_agent: bool = False
    # Tells the client what is being done, if it wants to know.
    report: Callable[[str], Awaitable[None]]


class Answer(Struct, frozen=True, kw_only=True):
    """What a tool answers. ``structured`` is the same for programs; None: there is only the text."""

    text: str
    structured: Any = None
    is_error: bool = False
    # The run that the answer is about.
    run_id: str | None = None


def answer_with(value: Struct) -> Answer:
    """The value as JSON, for models as for programs."""
    structured = msgspec.to_builtins(value)
    return Answer(text=json.dumps(structured, ensure_ascii=False, indent=1), structured=structured)
