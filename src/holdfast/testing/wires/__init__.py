"""The provider APIs that are spoken, by the path at which each is asked."""

import re
from urllib.parse import unquote

from holdfast.testing.wires import anthropic, bedrock, google, openai_chat, openai_responses
from holdfast.testing.wires.wire import Body, Wire

_WIRES = (openai_chat.WIRE, openai_responses.WIRE, anthropic.WIRE)

# Its SDK asks for different editions, and Vertex below a project: all are alike in what is spoken here.
_GOOGLE = re.compile(
    r"/v1(beta\d?|alpha)?/(projects/[^/]+/locations/[^/]+/publishers/google/)?"
    r"models/(?P<model>[^:]+):(?P<how>streamGenerateContent|generateContent)"
)

_BEDROCK = re.compile(r"/model/(?P<model>[^/]+)/(?P<how>converse-stream|converse)")


def wire_at(path: str) -> tuple[Wire, Body] | None:
    """The API that is asked at this path, and what the path says of the request."""
    for wire in _WIRES:
        # Compatible servers have the same API below paths of their own.
        if path.endswith(wire.path.removeprefix("/v1")):
            return wire, {}
    if asked := _GOOGLE.fullmatch(path):
        streams = asked["how"] == "streamGenerateContent"
        return google.WIRE, {"model": asked["model"], "stream": streams}
    if asked := _BEDROCK.fullmatch(path):
        streams = asked["how"] == "converse-stream"
        return bedrock.WIRE, {"model": unquote(asked["model"]), "stream": streams}
    return None
