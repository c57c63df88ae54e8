"""The histories that OpenAI chat completions refuses, in its words. Pure: body in, reason out."""

from collections.abc import Iterator
from typing import Any

from holdfast.testing.wires.openai_rules import length_refusals, name_refusals, picture_refusals
from holdfast.testing.wires.wire import Body

_MAX_ID_CHARS = 40
_ROLES = ("system", "assistant", "user", "function", "tool", "developer")


def refusal(body: Body) -> str | None:
    """Return the first reason to refuse, or None."""
    return next(_refusals(body), None)


def _refusals(body: Body) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter"
    messages = body.get("messages")
    if not isinstance(messages, list):
        yield "Missing required parameter: 'messages'."
        return
    if not messages:
        yield (
            "Invalid 'messages': empty array. "
            "Expected an array with minimum length 1, but got an empty array instead."
        )
    for index, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "function":
            yield from name_refusals(f"tools[{index}].function.name", tool["function"]["name"])
    # Mistral says "no calls" with an empty list, and takes it back.
    if "mistral" in str(body.get("model")):
        messages = [{k: v for k, v in item.items() if k != "tool_calls" or v} for item in messages]
    for index, message in enumerate(messages):
        yield from _shape_refusals(index, message)
    yield from picture_refusals(body.get("model"), (item.get("content") for item in messages))
    yield from _pairing_refusals(messages)


def _shape_refusals(index: int, message: dict[str, Any]) -> Iterator[str]:
    role = message.get("role")
    if role not in _ROLES:
        known = ", ".join(f"'{known}'" for known in _ROLES[:-1])
        yield f"Invalid value: '{role}'. Supported values are: {known}, and '{_ROLES[-1]}'."
    if role in {"user", "system", "developer", "tool"} and message.get("content") is None:
        yield f"Invalid value for 'messages[{index}].content': expected a string, got null."
    if role == "assistant":
        yield from _assistant_refusals(index, message)


def _assistant_refusals(index: int, message: dict[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is None:
        if message.get("content") is None and message.get("refusal") is None:
            yield f"Invalid value for 'messages[{index}].content': expected a string, got null."
        return
    if not calls:
        yield (
            f"Invalid 'messages[{index}].tool_calls': empty array. "
            "Expected an array with minimum length 1, but got an empty array instead."
        )
    seen: set[str] = set()
    for position, call in enumerate(calls):
        where = f"messages[{index}].tool_calls[{position}]"
        if call["id"] in seen:
            yield f"Duplicate value for 'tool_call_id' of '{call['id']}' in 'messages[{index}]'."
        seen.add(call["id"])
        yield from length_refusals(f"{where}.id", call["id"], _MAX_ID_CHARS)
        yield from name_refusals(f"{where}.function.name", call["function"]["name"])
        if not isinstance(call["function"].get("arguments"), str):
            yield f"Invalid type for '{where}.function.arguments': expected a string."


def _pairing_refusals(messages: list[dict[str, Any]]) -> Iterator[str]:
    calls: list[str] | None = None  # of the assistant message that the tool messages here follow
    unanswered: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if calls is None:
                yield (
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceeding message with 'tool_calls'."
                )
            elif call_id not in calls:
                yield (
                    f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' "
                    "of previous message."
                )
            unanswered = [waiting for waiting in unanswered if waiting != call_id]
            continue
        yield from _unanswered_refusals(unanswered)
        made = message.get("tool_calls")
        calls = [call["id"] for call in made] if made else None
        unanswered = list(calls or ())
    yield from _unanswered_refusals(unanswered)


def _unanswered_refusals(unanswered: list[str]) -> Iterator[str]:
    if unanswered:
        yield (
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(unanswered)
        )
