"""The provider APIs that the scripted provider implements, by path."""

import re
from urllib.parse import unquote

from holdfast.testing.wires import anthropic, bedrock, google, openai_chat, openai_responses
from holdfast.testing.wires.wire import Body, Wire

_WIRES = (openai_chat.WIRE, openai_responses.WIRE, anthropic.WIRE)

# The SDK uses several versions of the path, and Vertex one below a project; the bodies are the same.
_GOOGLE = re.compile(
    r"/v1(beta\d?|alpha)?/(projects/[^/]+/locations/[^/]+/publishers/google/)?"
    r"models/(?P<model>[^:]+):(?P<how>streamGenerateContent|generateContent)"
)

_BEDROCK = re.compile(r"/model/(?P<model>[^/]+)/(?P<how>converse-stream|converse)")


def wire_at(path: str) -> tuple[Wire, Body] | None:
    """The API at this path, and the part of the request that the path contains."""
    for wire in _WIRES:
        # Compatible servers have the same API below other paths.
        if path.endswith(wire.path.removeprefix("/v1")):
            return wire, {}
    if asked := _GOOGLE.fullmatch(path):
        streams = asked["how"] == "streamGenerateContent"
        return google.WIRE, {"model": asked["model"], "stream": streams}
    if asked := _BEDROCK.fullmatch(path):
        streams = asked["how"] == "converse-stream"
        return bedrock.WIRE, {"model": unquote(asked["model"]), "stream": streams}
    return None
