"""Bedrock's Converse: an answer as one object, or as frames of Amazon's event stream. Pure."""

import struct
import zlib
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
from holdfast.testing.wires.bedrock_rules import refusal
from holdfast.testing.wires.wire import Body, Streamed, Wire, encode

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "content_filtered",
}

_ERRORS = {
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
# A header of a frame is a string if this is its type.
_STRING = 7


def response_body(answer: Answer, _response_id: str, _body: Body) -> bytes:
    content = [_block(block.content) for block in lay_out(answer).blocks]
    return encode(
        {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _stop_reason(answer),
            "usage": _usage(answer.usage),
            "metrics": {"latencyMs": 1},
        }
    )


def stream(answer: Answer, _response_id: str, _body: Body) -> Iterator[Streamed]:
    yield _event("messageStart", {"role": "assistant"})
    layout = lay_out(answer)
    yield from layout.before
    for index, block in enumerate(layout.blocks):
        yield from _block_events(block, index)
    yield _event("messageStop", {"stopReason": _stop_reason(answer)})
    yield _event("metadata", {"usage": _usage(answer.usage), "metrics": {"latencyMs": 1}})


def error(fault: HttpError) -> bytes:
    plain = "InternalServerException" if fault.status >= 500 else "ValidationException"
    kind = fault.type or _ERRORS.get(fault.status, plain)
    return encode({"__type": kind, "message": fault.message})


def error_event(fault: HttpError, _events_before: int) -> bytes:
    headers = {":message-type": "exception", ":exception-type": "modelStreamErrorException"}
    return _frame(headers, encode({"message": fault.message}))


def _block(content: Content) -> dict[str, Any]:
    match content:
        case Text(text=text):
            return {"text": text}
        case Thinking(text=text, signature=signature):
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        case RedactedThinking(data=data):
            return {"reasoningContent": {"redactedContent": data}}
        case ToolCall(name=name, id=call_id):
            called = {"toolUseId": call_id, "name": name, "input": _input(content)}
            return {"toolUse": called}


def _block_events(block: Block, index: int) -> Iterator[Streamed]:
    place = {"contentBlockIndex": index}
    content = block.content
    if isinstance(content, ToolCall):
        start = {"toolUse": {"toolUseId": content.id, "name": content.name}}
        yield _event("contentBlockStart", place | {"start": start})
    for step in block.flow:
        if isinstance(step, str):
            yield _event("contentBlockDelta", place | {"delta": _delta(content, step)})
        else:
            yield step
    match content:
        case Thinking(signature=signature):
            signed = {"reasoningContent": {"signature": signature}}
            yield _event("contentBlockDelta", place | {"delta": signed})
        case RedactedThinking(data=data):
            hidden = {"reasoningContent": {"redactedContent": data}}
            yield _event("contentBlockDelta", place | {"delta": hidden})
        case _:
            pass
    yield _event("contentBlockStop", place)


def _delta(content: Content, piece: str) -> dict[str, Any]:
    match content:
        case Thinking():
            return {"reasoningContent": {"text": piece}}
        case ToolCall():
            return {"toolUse": {"input": piece}}
        case _:
            return {"text": piece}


def _input(call: ToolCall) -> object:
    try:
        return msgspec.json.decode(call.arguments_text)
    except msgspec.DecodeError:
        return call.arguments_text


def _stop_reason(answer: Answer) -> str:
    return _STOP_REASONS.get(answer.finish_reason, answer.finish_reason)


def _usage(usage: Usage) -> dict[str, int]:
    # Cached tokens are counted beside the input, not within it.
    fresh = max(0, usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens)
    return {
        "inputTokens": fresh,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cacheReadInputTokens": usage.cached_input_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def _event(name: str, data: dict[str, Any]) -> bytes:
    headers = {
        ":event-type": name,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return _frame(headers, encode(data))


def _frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of Amazon's event stream: lengths, headers, payload, and a checksum of each."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + struct.pack(">BH", _STRING, len(value))
        + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


WIRE = Wire(
    name="bedrock",
    path="/model/{model}/converse-stream",
    response_prefix="",
    call_prefix="tooluse_",
    response_body=response_body,
    stream=stream,
    error=error,
    error_event=error_event,
    refusal=refusal,
)
