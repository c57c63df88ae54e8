"""The histories that Bedrock's Converse refuses, in its words. Pure: body in, reason out."""

import re
from collections.abc import Iterator
from typing import Any

from holdfast.testing.wires.wire import Body

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def refusal(body: Body) -> str | None:
    """Return the first reason to refuse, or None."""
    return next(_refusals(body), None)


def _refusals(body: Body) -> Iterator[str]:
    messages = body.get("messages") or []
    if not messages or messages[0]["role"] != "user":
        yield "A conversation must start with a user message. Try again with a conversation that starts with a user message."
    before: dict[str, Any] | None = None
    for index, message in enumerate(messages):
        if before is not None and before["role"] == message["role"]:
            yield (
                "A conversation must alternate between user and assistant roles. "
                "Make sure the conversation alternates between user and assistant roles and try again."
            )
        yield from _content_refusals(index, message)
        yield from _pairing_refusals(index, before, message)
        before = message
    if before is not None and _ids(before, "toolUse"):
        yield _unanswered_calls_error(len(messages), _ids(before, "toolUse"))


def _content_refusals(index: int, message: dict[str, Any]) -> Iterator[str]:
    if not message.get("content"):
        yield f"The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to the content field and try again."
    for position, block in enumerate(message["content"]):
        if "text" in block and not block["text"].strip():
            yield (
                f"The text field in the ContentBlock object at messages.{index}.content.{position} "
                "is blank. Add text to the text field, and try again."
            )
    for call_id in (*_ids(message, "toolUse"), *_ids(message, "toolResult")):
        if not _ID.fullmatch(call_id):
            yield (
                f"Value '{call_id}' at 'messages.{index}.member.content' failed to satisfy "
                "constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
            )


def _pairing_refusals(
    index: int, before: dict[str, Any] | None, message: dict[str, Any]
) -> Iterator[str]:
    called = _ids(before, "toolUse") if before else []
    returned = _ids(message, "toolResult")
    if len(returned) > len(called):
        yield (
            f"The number of toolResult blocks at messages.{index}.content exceeds the number of "
            "toolUse blocks of previous turn."
        )
    missing = [call_id for call_id in called if call_id not in returned]
    if missing:
        yield _unanswered_calls_error(index, missing)


def _unanswered_calls_error(index: int, call_ids: list[str]) -> str:
    return (
        f"Expected toolResult blocks at messages.{index}.content for the following Ids: "
        + ", ".join(call_ids)
    )


def _ids(message: dict[str, Any], kind: str) -> list[str]:
    return [block[kind]["toolUseId"] for block in message["content"] if kind in block]
