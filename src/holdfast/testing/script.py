"""What a test may script: answers made of parts, and faults. Plain data, independent of any wire.

Everything is frozen except `Gate`, which the test releases.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from holdfast.testing.moments import DEFAULT_TIMEOUT_SECONDS, Moment

_WORD = re.compile(r"\s*\S+|\s+")

# Enough that a client must join fragments, few enough that a long argument stays cheap to send.
_MAX_ARGUMENT_FRAGMENTS = 16
_MIN_ARGUMENT_FRAGMENT_CHARS = 4


@dataclass(frozen=True, slots=True)
class Text:
    """Assistant text, streamed word by word, or as the `chunks` given.

    `delay_seconds` is waited before each chunk.
    """

    text: str = ""
    chunks: Sequence[str] = ()
    delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _joined_text(self.text, self.chunks))

    @property
    def pieces(self) -> Sequence[str]:
        return self.chunks or _WORD.findall(self.text)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Visible reasoning.

    Anthropic: a thinking block with its signature. OpenAI chat: the `reasoning_content` field that
    compatible servers use. OpenAI responses: a reasoning item with this summary, the signature as
    its encrypted content where the request asks for that. Google: a thought, its signature with the
    part that follows.
    """

    text: str = ""
    signature: str = "c2NyaXB0ZWQ="
    chunks: Sequence[str] = ()
    delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _joined_text(self.text, self.chunks))

    @property
    def pieces(self) -> Sequence[str]:
        return self.chunks or _WORD.findall(self.text)


@dataclass(frozen=True, slots=True)
class RedactedThinking:
    """Reasoning that the provider hides.

    Anthropic: a redacted_thinking block. OpenAI responses: a reasoning item without a summary.
    Google: only a signature, with the part that follows. OpenAI chat has no such thing and leaves it
    out.
    """

    data: str = "cmVkYWN0ZWQ="


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of the caller's tool. Arguments given as text are sent unchanged, also if they are not JSON.

    Without an `id` the provider generates one as the wire does. `at_once` streams it in one piece
    on OpenAI chat's wire, as many compatible servers do.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    at_once: bool = False

    @property
    def arguments_text(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()

    @property
    def fragments(self) -> list[str]:
        text = self.arguments_text
        size = max(_MIN_ARGUMENT_FRAGMENT_CHARS, -(-len(text) // _MAX_ARGUMENT_FRAGMENTS))
        return [text[start : start + size] for start in range(0, len(text), size)]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds before the next part."""

    seconds: float


class Gate:
    """Wait here until the test calls `release()`; `reached` happens when the provider waits here.

    A gate that is not released within `limit_seconds` resets the connection, so that a faulty test
    ends. Once released it stays open.
    """

    def __init__(
        self, name: str = "gate", *, limit_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> None:
        self.name = name
        self.limit_seconds = limit_seconds
        self.reached = Moment(f"reaching {name!r}")
        self.released = Moment(f"releasing {name!r}")

    def __repr__(self) -> str:
        return f"Gate({self.name!r})"

    def release(self) -> None:
        self.released.happen()


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection here, in the middle of the answer."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Send nothing more until the client closes the connection."""


@dataclass(frozen=True, slots=True)
class HttpError:
    """An error status with the wire's own error body; `type` and `code` default to the provider's.

    Inside an answer it is the provider failing in the middle: a stream that has begun with status
    200 ends with the wire's error event. With a `page` the body is that instead, as from a proxy in
    between that does not know the wire.
    """

    status: int
    message: str = "The scripted provider was told to fail."
    type: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None


Part: TypeAlias = (
    Text | Thinking | RedactedThinking | ToolCall | Pause | Gate | HangUp | Hang | HttpError
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, counted as OpenAI does: cached tokens are part of the input, reasoning of the output."""

    input_tokens: int = 10
    output_tokens: int = 5
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


_PLAIN_USAGE = Usage()


@dataclass(frozen=True, slots=True, init=False)
class Answer:
    """The model's answer, part after part; a string is a `Text`.

    `finish` is `stop`, `length`, `tool_calls` or `content_filter`, translated for each wire;
    any other word is sent unchanged. If left out, it follows from the parts.
    """

    parts: tuple[Part, ...]
    usage: Usage
    finish: str | None

    def __init__(
        self, *parts: Part | str, usage: Usage = _PLAIN_USAGE, finish: str | None = None
    ) -> None:
        made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        object.__setattr__(self, "parts", made)
        object.__setattr__(self, "usage", usage)
        object.__setattr__(self, "finish", finish)

    @property
    def finish_reason(self) -> str:
        if self.finish is not None:
            return self.finish
        called = any(isinstance(part, ToolCall) for part in self.parts)
        return "tool_calls" if called else "stop"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class MalformedJson:
    """Status 200 and a body that breaks off inside its JSON."""

    body: str = '{"id": "malformed", "model": "scri'


@dataclass(frozen=True, slots=True)
class MalformedSse:
    """Status 200 and an event stream whose data is not JSON, or not what the wire defines."""

    data: str = "{not json"


@dataclass(frozen=True, slots=True)
class TruncatedStream:
    """The stream ends correctly, as far as HTTP is concerned, after so many events of the answer.

    An answer that is not streamed breaks off in the middle of its body instead.
    """

    after: int
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class EmptyAnswer:
    """Status 200 without a body. (A model that says nothing is `Answer()`.)"""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The request is read and never answered."""


@dataclass(frozen=True, slots=True)
class ResetConnection:
    """The connection is reset (TCP RST) instead of an answer."""


@dataclass(frozen=True, slots=True)
class SlowHeaders:
    """Send nothing for so many seconds, not even the status line; then the answer."""

    seconds: float
    answer: Answer | None = None


Fault: TypeAlias = (
    HttpError
    | MalformedJson
    | MalformedSse
    | TruncatedStream
    | EmptyAnswer
    | NoAnswer
    | ResetConnection
    | SlowHeaders
)
Scripted: TypeAlias = Answer | Fault


def _joined_text(text: str, chunks: Sequence[str]) -> str:
    joined = "".join(chunks)
    if text and chunks and joined != text:
        raise ValueError(f"the chunks make {joined!r}, not {text!r}")
    return text or joined
