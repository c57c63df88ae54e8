"""Anthropic messages: an answer as one message, or as `message_start` … `message_stop`. Pure."""

from collections.abc import Iterator
from dataclasses import replace
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
from holdfast.testing.wires.anthropic_rules import refusal
from holdfast.testing.wires.wire import Body, Streamed, Wire, encode, render_pieces

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

# kind of block: what stands before each piece
_DELTAS: dict[type[Content], bytes] = {
    Text: b'{"type":"text_delta","text":',
    Thinking: b'{"type":"thinking_delta","thinking":',
    RedactedThinking: b"",  # has no pieces
    ToolCall: b'{"type":"input_json_delta","partial_json":',
}

_MESSAGE_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def response_body(answer: Answer, response_id: str, body: Body) -> bytes:
    content = [_block(block.content) for block in lay_out(answer).blocks]
    return encode(
        _message(response_id, body)
        | {
            "content": content,
            "stop_reason": _stop_reason(answer),
            "usage": _usage(answer.usage),
        }
    )


def stream(answer: Answer, response_id: str, body: Body) -> Iterator[Streamed]:
    started = _message(response_id, body) | {"usage": _usage(answer.usage) | {"output_tokens": 1}}
    yield _event("message_start", {"message": started})
    layout = lay_out(answer)
    yield from layout.before
    for index, block in enumerate(layout.blocks):
        yield from _block_events(block, index)
    ended = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield _event("message_delta", {"delta": ended, "usage": _usage(answer.usage)})
    yield _MESSAGE_STOP


def error(fault: HttpError) -> bytes:
    kind = _ERROR_TYPES.get(
        fault.status, "api_error" if fault.status >= 500 else "invalid_request_error"
    )
    details = {"type": fault.type or kind, "message": fault.message}
    return encode({"type": "error", "error": details, "request_id": "req_scripted"})


def error_event(fault: HttpError, _events_before: int) -> bytes:
    return b"event: error\ndata: %b\n\n" % error(fault)


def _message(response_id: str, body: Body) -> dict[str, Any]:
    return {
        "id": response_id,
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block(content: Content) -> dict[str, Any]:
    match content:
        case Text(text=text):
            return {"type": "text", "text": text, "citations": None}
        case Thinking(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case RedactedThinking(data=data):
            return {"type": "redacted_thinking", "data": data}
        case ToolCall(name=name, id=call_id):
            return {"type": "tool_use", "id": call_id, "name": name, "input": _input(content)}


def _empty_block(content: Content) -> dict[str, Any]:
    match content:
        case Text():
            return _block(Text())
        case Thinking():
            return _block(Thinking(signature=""))
        case RedactedThinking():
            return _block(content)
        case ToolCall():
            return _block(replace(content, arguments={}))


def _block_events(block: Block, index: int) -> Iterator[Streamed]:
    started = {"index": index, "content_block": _empty_block(block.content)}
    yield _event("content_block_start", started)
    name = b'event: content_block_delta\ndata: {"type":"content_block_delta",'
    before = name + b'"index":%d,"delta":' % index
    yield from render_pieces(block, before + _DELTAS[type(block.content)], b"}}\n\n")
    if isinstance(block.content, Thinking):
        signed = encode({"type": "signature_delta", "signature": block.content.signature})
        yield before + signed + b"}\n\n"
    yield _event("content_block_stop", {"index": index})


def _input(call: ToolCall) -> object:
    try:
        return msgspec.json.decode(call.arguments_text)
    except msgspec.DecodeError:
        # A test asked for arguments that are no JSON; this wire can only show them as a string.
        return call.arguments_text


def _stop_reason(answer: Answer) -> str:
    return _STOP_REASONS.get(answer.finish_reason, answer.finish_reason)


def _usage(usage: Usage) -> dict[str, Any]:
    # Anthropic counts cached tokens beside the input, not within it.
    fresh = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens
    return {
        "input_tokens": max(0, fresh),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode({"type": name} | data))


WIRE = Wire(
    name="anthropic",
    path="/v1/messages",
    response_prefix="msg_",
    call_prefix="toolu_",
    response_body=response_body,
    stream=stream,
    error=error,
    error_event=error_event,
    refusal=refusal,
)
