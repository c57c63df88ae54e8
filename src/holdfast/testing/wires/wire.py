"""What each wire implements, and what they share. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.testing.layout import Block
from holdfast.testing.replies import Step
from holdfast.testing.script import Answer, HttpError

Body: TypeAlias = dict[str, Any]
Streamed: TypeAlias = Step | HttpError
WireName: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic", "google", "bedrock"]

# Answers carry a fixed date, so that the same script gives the same bytes.
CREATED_AT = 1_767_225_600  # 2026-01-01T00:00:00Z

encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider API.

    `response_body` and `stream` render an answer with a response id for a request's body; every tool call
    of the answer has an id. `error_event` renders an error in a stream, after so many events.
    `refusal` says why the real provider would refuse the body, if it would.
    """

    name: WireName
    path: str
    response_prefix: str
    call_prefix: str
    response_body: Callable[[Answer, str, Body], bytes]
    stream: Callable[[Answer, str, Body], Iterator[Streamed]]
    error: Callable[[HttpError], bytes]
    error_event: Callable[[HttpError, int], bytes]
    refusal: Callable[[Body], str | None]


def render_pieces(block: Block, before: bytes, after: bytes) -> Iterator[Streamed]:
    """Render each piece of a block as one event; interruptions stay where they are."""
    for step in block.flow:
        yield before + encode(step) + after if isinstance(step, str) else step
