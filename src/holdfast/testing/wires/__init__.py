"""The provider APIs that are spoken, by the path at which each is asked."""

import re

from holdfast.testing.wires import anthropic, google, openai_chat, openai_responses
from holdfast.testing.wires.wire import Body, Wire

_WIRES = (openai_chat.WIRE, openai_responses.WIRE, anthropic.WIRE)

# Its SDK asks for different editions, and Vertex below a project: all are alike in what is spoken here.
_GOOGLE = re.compile(
    r"/v1(beta\d?|alpha)?/(projects/[^/]+/locations/[^/]+/publishers/google/)?"
    r"models/(?P<model>[^:]+):(?P<how>streamGenerateContent|generateContent)"
)


def wire_at(path: str) -> tuple[Wire, Body] | None:
    """The API that is asked at this path, and what the path says of the request."""
    for wire in _WIRES:
        # Compatible servers have the same API below paths of their own.
        if path.endswith(wire.path.removeprefix("/v1")):
            return wire, {}
    asked = _GOOGLE.fullmatch(path)
    if asked is None:
        return None
    streams = asked["how"] == "streamGenerateContent"
    return google.WIRE, {"model": asked["model"], "stream": streams}
