"""OpenAI responses: an answer as one response object, or as `response.*` events. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

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
from holdfast.testing.wires.openai_errors import error
from holdfast.testing.wires.openai_responses_rules import refusal
from holdfast.testing.wires.wire import CREATED_AT, Body, Streamed, Wire, encode

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response_body(answer: Answer, response_id: str, body: Body) -> bytes:
    return encode(_final_response(answer, response_id, body))


def stream(answer: Answer, response_id: str, body: Body) -> Iterator[Streamed]:
    events = _Events()
    opened = _response(response_id, body)
    yield events.event("response.created", {"response": opened})
    yield events.event("response.in_progress", {"response": opened})
    layout = lay_out(answer)
    yield from layout.before
    for index, block in enumerate(layout.blocks):
        item = _item(block.content, _item_id(response_id, index, block.content), body)
        yield from _item_events(events, block, item, index)
    ended = _final_response(answer, response_id, body)
    yield events.event(f"response.{ended['status']}", {"response": ended})


def error_event(fault: HttpError, events_before: int) -> bytes:
    details = {"code": fault.code or "server_error", "message": fault.message, "param": None}
    return _Events(count(events_before)).event("error", details)


@dataclass(slots=True)
class _Events:
    """Numbers the events of one stream."""

    numbers: Iterator[int] = field(default_factory=count)

    def event(self, name: str, data: dict[str, Any]) -> bytes:
        numbered = {"type": name, "sequence_number": next(self.numbers)} | data
        return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(numbered))

    def deltas(self, name: str, place: dict[str, Any], block: Block) -> Iterator[Streamed]:
        opening = encode({"type": name} | place)[:-1]
        before = b'event: %b\ndata: %b,"delta":' % (name.encode(), opening)
        for step in block.flow:
            if isinstance(step, str):
                yield before + encode(step) + b',"sequence_number":%d}\n\n' % next(self.numbers)
            else:
                yield step


def _item_events(
    events: _Events, block: Block, item: dict[str, Any], index: int
) -> Iterator[Streamed]:
    place = {"output_index": index, "item_id": item["id"]}
    yield events.event(
        "response.output_item.added", {"output_index": index, "item": _started_item(item)}
    )
    match block.content:
        case Text(text=text):
            yield from _text_events(events, block, place | {"content_index": 0}, text)
        case Thinking(text=text):
            yield from _summary_events(events, block, place | {"summary_index": 0}, text)
        case ToolCall():
            name = "response.function_call_arguments"
            yield from events.deltas(f"{name}.delta", place, block)
            yield events.event(
                f"{name}.done", place | {"name": item["name"], "arguments": item["arguments"]}
            )
        case RedactedThinking():
            yield from block.interruptions
    yield events.event("response.output_item.done", {"output_index": index, "item": item})


def _text_events(
    events: _Events, block: Block, place: dict[str, Any], text: str
) -> Iterator[Streamed]:
    yield events.event("response.content_part.added", place | {"part": _output_text("")})
    yield from events.deltas("response.output_text.delta", place | {"logprobs": []}, block)
    yield events.event("response.output_text.done", place | {"text": text, "logprobs": []})
    yield events.event("response.content_part.done", place | {"part": _output_text(text)})


def _summary_events(
    events: _Events, block: Block, place: dict[str, Any], text: str
) -> Iterator[Streamed]:
    name = "response.reasoning_summary"
    yield events.event(f"{name}_part.added", place | {"part": _summary("")})
    yield from events.deltas(f"{name}_text.delta", place, block)
    yield events.event(f"{name}_text.done", place | {"text": text})
    yield events.event(f"{name}_part.done", place | {"part": _summary(text)})


def _response(response_id: str, body: Body) -> dict[str, Any]:
    return {
        "id": response_id,
        "object": "response",
        "created_at": CREATED_AT,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "model": body.get("model"),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "temperature": body.get("temperature", 1.0),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "usage": None,
    }


def _final_response(answer: Answer, response_id: str, body: Body) -> dict[str, Any]:
    reason = _INCOMPLETE.get(answer.finish_reason)
    return _response(response_id, body) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": [
            _item(block.content, _item_id(response_id, index, block.content), body)
            for index, block in enumerate(lay_out(answer).blocks)
        ],
        "usage": _usage(answer.usage),
    }


def _item(content: Content, item_id: str, body: Body) -> dict[str, Any]:
    match content:
        case Text(text=text):
            return {
                "id": item_id,
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [_output_text(text)],
            }
        case Thinking(text=text, signature=signature):
            return _reasoning(item_id, [_summary(text)], signature, body)
        case RedactedThinking(data=data):
            return _reasoning(item_id, [], data, body)
        case ToolCall(name=name, id=call_id):
            return {
                "id": item_id,
                "type": "function_call",
                "status": "completed",
                "call_id": call_id,
                "name": name,
                "arguments": content.arguments_text,
            }


def _reasoning(
    item_id: str, summary: list[dict[str, str]], encrypted: str, body: Body
) -> dict[str, Any]:
    item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": summary}
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        item["encrypted_content"] = encrypted
    return item


def _started_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item as it is announced, before its content has come."""
    match item["type"]:
        case "message":
            return item | {"status": "in_progress", "content": []}
        case "function_call":
            return item | {"status": "in_progress", "arguments": ""}
        case _:
            return item | {"summary": []}


def _item_id(response_id: str, index: int, content: Content) -> str:
    match content:
        case Text():
            prefix = "msg_"
        case ToolCall():
            prefix = "fc_"
        case Thinking() | RedactedThinking():
            prefix = "rs_"
    return f"{prefix}{response_id.removeprefix(WIRE.response_prefix)}_{index}"


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary(text: str) -> dict[str, str]:
    return {"type": "summary_text", "text": text}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


WIRE = Wire(
    name="openai-responses",
    path="/v1/responses",
    response_prefix="resp_",
    call_prefix="call_",
    response_body=response_body,
    stream=stream,
    error=error,
    error_event=error_event,
    refusal=refusal,
)
