"""OpenAI chat completions: an answer as one object, or as `chat.completion.chunk` events. Pure."""

from collections.abc import Iterator
from typing import Any

from holdfast.testing.layout import Content, lay_out
from holdfast.testing.script import (
    Answer,
    HttpError,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from holdfast.testing.wires.openai_chat_rules import refusal
from holdfast.testing.wires.openai_errors import error
from holdfast.testing.wires.wire import CREATED_AT, Body, Streamed, Wire, encode, render_pieces


def response_body(answer: Answer, response_id: str, body: Body) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    thoughts = [part.text for part in answer.parts if isinstance(part, Thinking)]
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    calls = [_call(part) for part in answer.parts if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": answer.finish_reason,
    }
    return encode(
        {
            "id": response_id,
            "object": "chat.completion",
            "created": CREATED_AT,
            "model": body.get("model"),
            "choices": [choice],
            "usage": _usage(answer.usage),
        }
    )


def stream(answer: Answer, response_id: str, body: Body) -> Iterator[Streamed]:
    named = (encode(response_id), CREATED_AT, encode(body.get("model")))
    opening = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % named
    before = opening + b'"choices":[{"index":0,"delta":'
    after = b',"finish_reason":null}]}\n\n'
    yield before + b'{"role":"assistant","content":""}' + after
    layout = lay_out(answer)
    yield from layout.before
    calls = 0
    for block in layout.blocks:
        if isinstance(block.content, ToolCall):
            yield before + _call_start(block.content, calls) + after
            calls += 1
            if block.content.at_once:
                yield from block.interruptions
                continue
        start, end = _delta_frame(block.content, calls - 1)
        yield from render_pieces(block, before + start, end + after)
    asked = (body.get("stream_options") or {}).get("include_usage")
    usage = encode(_usage(answer.usage))
    # Mistral sends the usage without being asked, in the last chunk.
    unasked = b',"usage":' + usage if not asked and "mistral" in str(body.get("model")) else b""
    yield before + b'{},"finish_reason":%b}]%b}\n\n' % (encode(answer.finish_reason), unasked)
    if asked:
        yield opening + b'"choices":[],"usage":%b}\n\n' % usage
    yield b"data: [DONE]\n\n"


def error_event(fault: HttpError, _events_before: int) -> bytes:
    return b"data: %b\n\n" % error(fault)


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments_text},
    }


def _call_start(call: ToolCall, index: int) -> bytes:
    arguments = call.arguments_text if call.at_once else ""
    called = {"index": index, "function": {"name": call.name, "arguments": arguments}}
    return encode({"tool_calls": [_call(call) | called]})


def _delta_frame(content: Content, call_index: int) -> tuple[bytes, bytes]:
    """The JSON before and after each piece of such content."""
    match content:
        case ToolCall():
            return b'{"tool_calls":[{"index":%d,"function":{"arguments":' % call_index, b"}}]}"
        case Thinking():
            return b'{"reasoning_content":', b"}"
        case Text() | RedactedThinking():
            return b'{"content":', b"}"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


WIRE = Wire(
    name="openai-chat",
    path="/v1/chat/completions",
    response_prefix="chatcmpl-",
    call_prefix="call_",
    response_body=response_body,
    stream=stream,
    error=error,
    error_event=error_event,
    refusal=refusal,
)
