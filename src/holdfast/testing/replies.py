"""HTTP framing of replies. A reply is a list of bytes to send and waits between them. Pure.

Adjacent bytes are joined, so that everything between two waits is one write.
"""

from collections.abc import Iterable, Mapping
from http.client import responses as phrases
from typing import TypeAlias

from holdfast.testing.script import Gate, Hang, HangUp, Pause, ResetConnection

Step: TypeAlias = bytes | Pause | Gate | HangUp | Hang | ResetConnection
Reply: TypeAlias = list[Step]

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"

_LAST_CHUNK = b"0\r\n\r\n"
_STREAM_HEAD = (
    f"HTTP/1.1 200 OK\r\ncontent-type: {EVENT_STREAM}\r\ncache-control: no-cache\r\n"
    "transfer-encoding: chunked\r\n\r\n"
).encode()


def complete_response(
    status: int, body: bytes, *, content_type: str = JSON, headers: Mapping[str, str] | None = None
) -> bytes:
    """Frame a complete response of known length."""
    # 529, Anthropic's "overloaded", is not a registered status.
    phrase = phrases.get(status, "Unregistered")
    lines = [f"HTTP/1.1 {status} {phrase}", f"content-type: {content_type}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines.append(f"content-length: {len(body)}\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1") + body


def event_stream(events: Iterable[Step]) -> Reply:
    """Frame a chunked response: one chunk for all events without a wait between them."""
    reply: Reply = [_STREAM_HEAD]
    for step in _join_bytes(events):
        reply.append(_chunk(step) if isinstance(step, bytes) else step)
    reply.append(_LAST_CHUNK)
    return list(_join_bytes(reply))


def _join_bytes(steps: Iterable[Step]) -> Iterable[Step]:
    pending: list[bytes] = []
    for step in steps:
        if isinstance(step, bytes):
            pending.append(step)
            continue
        if pending:
            yield b"".join(pending)
            pending = []
        yield step
    if pending:
        yield b"".join(pending)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
