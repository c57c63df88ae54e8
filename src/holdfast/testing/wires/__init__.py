"""The provider APIs that are spoken, by the path at which each is asked."""

import re

from holdfast.testing.wires import anthropic, google, openai_chat, openai_responses
from holdfast.testing.wires.wire import Body, Wire

_WIRES: dict[str, Wire] = {
    wire.path: wire for wire in (openai_chat.WIRE, openai_responses.WIRE, anthropic.WIRE)
}

# Its SDK asks for different editions, which are alike in all that is spoken here.
_GOOGLE = re.compile(
    r"/v1(beta|alpha)?/models/(?P<model>[^:]+):(?P<how>streamGenerateContent|generateContent)"
)


def wire_at(path: str) -> tuple[Wire, Body] | None:
    """The API that is asked at this path, and what the path says of the request."""
    if path in _WIRES:
        return _WIRES[path], {}
    asked = _GOOGLE.fullmatch(path)
    if asked is None:
        return None
    streams = asked["how"] == "streamGenerateContent"
    return google.WIRE, {"model": asked["model"], "stream": streams}
