"""The inputs that OpenAI responses refuses, in its words. Pure: body in, reason out."""

from collections.abc import Iterator
from typing import Any

from holdfast.testing.wires.openai_rules import length_refusals, name_refusals, picture_refusals
from holdfast.testing.wires.wire import Body

_MAX_ID_CHARS = 64
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_ROLES = ("assistant", "system", "developer", "user")
# With one of these the calls may be in the part of the history that the provider keeps.
_STORED_HISTORY = ("previous_response_id", "conversation")


def refusal(body: Body) -> str | None:
    """Return the first reason to refuse, or None."""
    return next(_refusals(body), None)


def _refusals(body: Body) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "Missing required parameter: 'model'."
    stored = any(body.get(field) for field in _STORED_HISTORY)
    if not body.get("input") and not stored:
        yield (
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation_id' "
            "must be provided."
        )
    for index, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "function":
            yield from name_refusals(f"tools[{index}].name", tool["name"])
    items = body.get("input") or []
    if isinstance(items, str):
        return
    for index, item in enumerate(items):
        yield from _shape_refusals(index, item)
    contents = [item.get("content") or item.get("output") for item in items]
    yield from picture_refusals(body.get("model"), contents)
    yield from _id_refusals(items)
    yield from _reasoning_refusals(items)
    if body.get("store") is False:
        yield from _unstored_item_refusals(items)
    yield from _pairing_refusals(items, stored=stored)


def _shape_refusals(index: int, item: dict[str, Any]) -> Iterator[str]:
    match item.get("type", "message"):
        case "message":
            if item.get("role") not in _ROLES:
                known = ", ".join(f"'{role}'" for role in _ROLES[:-1])
                yield (
                    f"Invalid value: '{item.get('role')}'. "
                    f"Supported values are: {known}, and '{_ROLES[-1]}'."
                )
        case "function_call":
            yield from name_refusals(f"input[{index}].name", item["name"])
            if not isinstance(item.get("arguments"), str):
                yield f"Invalid type for 'input[{index}].arguments': expected a string."


def _id_refusals(items: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        given, kind = item.get("id"), item.get("type", "message")
        if "call_id" in item:
            yield from length_refusals(f"input[{index}].call_id", item["call_id"], _MAX_ID_CHARS)
        if given is None:
            continue
        yield from length_refusals(f"input[{index}].id", given, _MAX_ID_CHARS)
        prefix = _ID_PREFIXES.get(kind)
        if prefix and not given.startswith(prefix):
            yield (
                f"Invalid 'input[{index}].id': '{given}'. "
                f"Expected an ID that begins with '{prefix}'."
            )
        if given in seen:
            yield (
                f"Duplicate item found with id {given}. "
                "Remove duplicate items from your input and try again."
            )
        seen.add(given)


def _unstored_item_refusals(items: list[dict[str, Any]]) -> Iterator[str]:
    """With `store: false` a reasoning item must be sent back with its encrypted content."""
    for item in items:
        if item.get("type") == "reasoning" and not item.get("encrypted_content"):
            yield (
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` "
                "is set to false. Try again with `store` set to true, or remove this item from your "
                "input."
            )


def _reasoning_refusals(items: list[dict[str, Any]]) -> Iterator[str]:
    for item, following in zip(items, [*items[1:], None], strict=True):
        if item.get("type") == "reasoning" and not _is_model_output(following):
            yield (
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required "
                "following item."
            )


def _is_model_output(item: dict[str, Any] | None) -> bool:
    if item is None or item.get("type") == "function_call_output":
        return False
    return item.get("type", "message") != "message" or item.get("role") == "assistant"


def _pairing_refusals(items: list[dict[str, Any]], *, stored: bool) -> Iterator[str]:
    called: list[str] = []
    answered: set[str] = set()
    for item in items:
        match item.get("type"):
            case "function_call":
                called.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in called and not stored:
                    yield (
                        "No tool call found for function call output with call_id "
                        f"{item['call_id']}."
                    )
                answered.add(item["call_id"])
    yield from (
        f"No tool output found for function call {call_id}."
        for call_id in called
        if call_id not in answered
    )
