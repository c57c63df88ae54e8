"""Google's generateContent: an answer as one response, or as server-sent responses that add up. Pure.

Model and streaming are in the address here; the provider puts both into the body, where the others have them.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.testing.layout import Block, Content, lay_out
from holdfast.testing.script import (
    Answer,
    HttpError,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from holdfast.testing.wires.google_rules import refusal
from holdfast.testing.wires.wire import Body, Streamed, Wire, encode

_FINISH_REASONS = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "content_filter": "SAFETY",
}

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def response_body(answer: Answer, response_id: str, body: Body) -> bytes:
    parts = [part for part, _ in _signed_parts(lay_out(answer).blocks)]
    candidate = _candidate(parts) | {"finishReason": _finish_reason(answer)}
    return encode(_response([candidate], answer, response_id, body))


def stream(answer: Answer, response_id: str, body: Body) -> Iterator[Streamed]:
    layout = lay_out(answer)
    yield from layout.before
    for part, block in _signed_parts(layout.blocks):
        for step in _part_pieces(part, block):
            if isinstance(step, dict):
                yield _event(_response([_candidate([step])], answer, response_id, body))
            else:
                yield step
    ended = _candidate([{"text": ""}]) | {"finishReason": _finish_reason(answer)}
    yield _event(_response([ended], answer, response_id, body))


def error(fault: HttpError) -> bytes:
    status = _STATUSES.get(
        fault.status, "INTERNAL" if fault.status >= 500 else "FAILED_PRECONDITION"
    )
    details = {"code": fault.status, "message": fault.message, "status": fault.type or status}
    return encode({"error": details})


def error_event(fault: HttpError, _events_before: int) -> bytes:
    return b"data: %b\r\n\r\n" % error(fault)


def _signed_parts(blocks: list[Block]) -> Iterator[tuple[dict[str, Any], Block | None]]:
    """Each block as a part. A thought's signature is sent with the part that follows the thought."""
    signature: str | None = None
    for block in blocks:
        match block.content:
            case Thinking():
                yield _part(block.content), block
                signature = block.content.signature
            case RedactedThinking(data=data):
                signature = data
            case Text() | ToolCall():
                yield _part(block.content) | _signature(signature), block
                signature = None
    if signature:
        yield {"text": ""} | _signature(signature), None


def _signature(signature: str | None) -> dict[str, str]:
    return {"thoughtSignature": signature} if signature else {}


def _part(content: Content) -> dict[str, Any]:
    match content:
        case Text(text=text):
            return {"text": text}
        case Thinking(text=text):
            return {"text": text, "thought": True}
        case ToolCall(name=name, id=call_id):
            return {"functionCall": {"id": call_id, "name": name, "args": _arguments(content)}}
        case RedactedThinking():
            return {}


def _part_pieces(part: dict[str, Any], block: Block | None) -> Iterator[dict[str, Any] | Streamed]:
    """A part in pieces, its signature with the last; this wire sends calls in one piece."""
    if block is None or "text" not in part:
        yield part
        yield from block.interruptions if block else ()
        return
    last = max((n for n, step in enumerate(block.flow) if isinstance(step, str)), default=-1)
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    for number, step in enumerate(block.flow):
        if isinstance(step, str):
            yield (part if number == last else plain) | {"text": step}
        else:
            yield step


def _arguments(call: ToolCall) -> object:
    """Always an object on this wire: anything else that a test scripted is put inside one."""
    try:
        decoded = msgspec.json.decode(call.arguments_text)
    except msgspec.DecodeError:
        decoded = call.arguments_text
    return decoded if isinstance(decoded, dict) else {"arguments": decoded}


def _candidate(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": {"parts": parts, "role": "model"}, "index": 0}


def _response(
    candidates: list[dict[str, Any]], answer: Answer, response_id: str, body: Body
) -> dict[str, Any]:
    return {
        "candidates": candidates,
        "usageMetadata": _usage(answer.usage),
        "modelVersion": body.get("model"),
        "responseId": response_id,
    }


def _finish_reason(answer: Answer) -> str:
    return _FINISH_REASONS.get(answer.finish_reason, answer.finish_reason)


def _usage(usage: Usage) -> dict[str, int]:
    # Google counts thoughts beside the answer, not within it.
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": max(0, usage.output_tokens - usage.reasoning_tokens),
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_input_tokens:
        counts["cachedContentTokenCount"] = usage.cached_input_tokens
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    return counts


def _event(response: dict[str, Any]) -> bytes:
    return b"data: %b\r\n\r\n" % encode(response)


WIRE = Wire(
    name="google",
    path="/v1beta/models/{model}:generateContent",
    response_prefix="google-",
    call_prefix="call_",
    response_body=response_body,
    stream=stream,
    error=error,
    error_event=error_event,
    refusal=refusal,
)
