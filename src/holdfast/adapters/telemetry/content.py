"""Messages as OpenTelemetry's GenAI conventions define them. Used only if the operator asks for content."""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.core.messages import Message, Part, Text, Thinking, ToolCall, ToolReturn
from holdfast.ports.model import Answer


def input_messages(history: Iterable[Message]) -> str:
    return _json([_message(row) for row in history])


def output_messages(answer: Answer) -> str:
    parts = [*map(_part, answer.content), *map(_call, answer.tool_calls)]
    message = {"role": "assistant", "parts": parts, "finish_reason": answer.finish}
    return _json([message])


def tool_result(returned: ToolReturn) -> str:
    return _json([_part(part) for part in returned.content])


def _message(row: Message) -> dict[str, Any]:
    parts = [*map(_part, row.content), *map(_call, row.tool_calls)]
    parts += [
        {
            "type": "tool_call_response",
            "id": item.call_id,
            "response": [_part(part) for part in item.content],
        }
        for item in row.tool_returns
    ]
    return {"role": row.role, "parts": parts}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": text}
        case Thinking(text=text):
            return {"type": "reasoning", "content": text}
        case _:
            # An image is too large for a span.
            return {"type": type(part).__name__.lower()}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
