"""Renders what was scripted as the reply on the connection, for any wire. Pure."""

from collections.abc import Iterator
from itertools import islice

from holdfast.testing import replies
from holdfast.testing.layout import lay_out
from holdfast.testing.replies import Reply, Step
from holdfast.testing.script import (
    Answer,
    EmptyAnswer,
    Hang,
    HangUp,
    HttpError,
    MalformedJson,
    MalformedSse,
    NoAnswer,
    Pause,
    ResetConnection,
    Scripted,
    SlowHeaders,
    TruncatedStream,
)
from holdfast.testing.wires.wire import Body, Wire


def render(scripted: Scripted, wire: Wire, response_id: str, body: Body) -> Reply:
    """Render what was scripted; answers inside faults must have been filled in."""
    match scripted:
        case Answer():
            return _render_answer(scripted, wire, response_id, body)
        case HttpError():
            return [_render_error(scripted, wire)]
        case SlowHeaders(seconds=seconds, answer=Answer() as answer):
            return [Pause(seconds), *_render_answer(answer, wire, response_id, body)]
        case TruncatedStream(after=after, answer=Answer() as answer):
            return _render_truncated(answer, after, wire, response_id, body)
        case MalformedJson(body=text):
            return [replies.complete_response(200, text.encode())]
        case MalformedSse(data=data):
            # Google's events have no names.
            name = "" if wire.name == "google" else "event: message_start\n"
            event = f"{name}data: {data}\n\n".encode()
            return [replies.complete_response(200, event, content_type=replies.EVENT_STREAM)]
        case _:
            return _FIXED_REPLIES[type(scripted)]


_FIXED_REPLIES: dict[type[object], Reply] = {
    EmptyAnswer: [replies.complete_response(200, b"")],
    NoAnswer: [Hang()],
    ResetConnection: [ResetConnection()],
}


def _render_answer(answer: Answer, wire: Wire, response_id: str, body: Body) -> Reply:
    if body.get("stream") is True:
        return replies.event_stream(_stream_steps(answer, wire, response_id, body))
    # An answer that is not streamed is sent at once, after all its waits.
    reply: Reply = []
    for step in lay_out(answer).interruptions:
        if isinstance(step, HttpError):
            return [*reply, _render_error(step, wire)]
        reply.append(step)
    return [*reply, replies.complete_response(200, wire.response_body(answer, response_id, body))]


def _stream_steps(answer: Answer, wire: Wire, response_id: str, body: Body) -> Iterator[Step]:
    sent = 0
    for step in wire.stream(answer, response_id, body):
        if isinstance(step, HttpError):
            yield wire.error_event(step, sent)
            return
        sent += isinstance(step, bytes)
        yield step


def _render_truncated(
    answer: Answer, after: int, wire: Wire, response_id: str, body: Body
) -> Reply:
    if body.get("stream") is True:
        events = _stream_steps(answer, wire, response_id, body)
        return replies.event_stream(islice((e for e in events if isinstance(e, bytes)), after))
    complete = replies.complete_response(200, wire.response_body(answer, response_id, body))
    return [complete[: len(complete) * 3 // 4], HangUp()]


def _render_error(fault: HttpError, wire: Wire) -> bytes:
    if fault.page is not None:
        page = fault.page.encode()
        return replies.complete_response(
            fault.status, page, content_type="text/html", headers=fault.headers
        )
    return replies.complete_response(fault.status, wire.error(fault), headers=fault.headers)
