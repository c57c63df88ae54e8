"""The requests that Anthropic messages refuses, in its words. Pure: body in, reason out.

As the API does, messages of the same role in a row count as one turn.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.testing.wires.wire import Body

_REQUIRED = ("model", "max_tokens", "messages")
_ROLES = ("user", "assistant", "system")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MIN_THINKING_BUDGET_TOKENS = 1024
_MAX_CACHE_MARKS = 4
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_THINKING_TYPES = ("thinking", "redacted_thinking")
_THINKING_DOCS = (
    "Please consult our documentation at "
    "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Messages of one role in a row; `index` is the first one's place in the request."""

    index: int
    role: str
    blocks: list[dict[str, Any]]

    def of_type(self, *types: str) -> list[dict[str, Any]]:
        return [block for block in self.blocks if block.get("type") in types]


def refusal(body: Body) -> str | None:
    """Return the first reason to refuse, or None."""
    return next(_refusals(body), None)


def _refusals(body: Body) -> Iterator[str]:
    missing = [field for field in _REQUIRED if body.get(field) is None]
    yield from (f"{field}: Field required" for field in missing)
    if not body["messages"]:
        yield "messages: at least one message is required"
    yield from _option_refusals(body)
    for index, tool in enumerate(body.get("tools") or ()):
        if not _TOOL_NAME.fullmatch(tool.get("name", "")):
            yield f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    for index, message in enumerate(body["messages"]):
        if message.get("role") not in _ROLES:
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
    yield from _content_refusals(body["messages"])
    marked = _count_cache_marks(body)
    if marked > _MAX_CACHE_MARKS:
        yield (
            f"A maximum of {_MAX_CACHE_MARKS} blocks with cache_control may be provided. "
            f"Found {marked}."
        )
    turns = _turns(body["messages"])
    if not turns or turns[0].role != "user":
        yield 'messages: first message must use the "user" role'
    yield from _pairing_refusals(turns)
    if _is_thinking_enabled(body):
        yield from _thinking_start_refusals(turns)


def _count_cache_marks(value: object) -> int:
    if isinstance(value, dict):
        own = value.get("cache_control") is not None
        return own + sum(_count_cache_marks(inner) for inner in value.values())
    return sum(map(_count_cache_marks, value)) if isinstance(value, list) else 0


def _option_refusals(body: Body) -> Iterator[str]:
    if body["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if not _is_thinking_enabled(body):
        return
    budget = body["thinking"].get("budget_tokens")
    if budget is None:
        yield "thinking.enabled.budget_tokens: Field required"
    if budget < _MIN_THINKING_BUDGET_TOKENS:
        yield (
            "thinking.enabled.budget_tokens: "
            f"Input should be greater than or equal to {_MIN_THINKING_BUDGET_TOKENS}"
        )
    if budget >= body["max_tokens"]:
        yield f"`max_tokens` must be greater than `thinking.budget_tokens`. {_THINKING_DOCS}"
    if body.get("temperature") not in {None, 1}:
        yield f"`temperature` may only be set to 1 when thinking is enabled. {_THINKING_DOCS}"


def _is_thinking_enabled(body: Body) -> bool:
    return (body.get("thinking") or {}).get("type") == "enabled"


def _content_refusals(messages: list[dict[str, Any]]) -> Iterator[str]:
    last = len(messages) - 1
    for index, message in enumerate(messages):
        prefilled = index == last and message["role"] == "assistant"
        if not message.get("content") and not prefilled:
            yield (
                f"messages.{index}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )
        blocks = _blocks(message)
        for position, block in enumerate(blocks):
            yield from _block_refusals(f"messages.{index}.content.{position}", block)
        if prefilled and blocks and blocks[-1].get("type") == "text":
            text = blocks[-1]["text"]
            if text != text.rstrip():
                yield "messages: final assistant content cannot end with trailing whitespace"


def _block_refusals(where: str, block: dict[str, Any]) -> Iterator[str]:
    match block.get("type"):
        case "text":
            yield from _text_refusals(block)
        case "thinking" | "redacted_thinking" as kind:
            if block.get("cache_control"):
                yield f"{where}.{kind}.cache_control: Extra inputs are not permitted"
            if kind == "thinking":
                yield from _thinking_refusals(where, block)
        case "image":
            yield from _image_refusals(where, block.get("source") or {})
        case "tool_result":
            yield from _id_refusals(f"{where}.tool_result.tool_use_id", block["tool_use_id"])
        case "tool_use":
            yield from _id_refusals(f"{where}.tool_use.id", block["id"])
            if not isinstance(block.get("input"), dict):
                yield f"{where}.tool_use.input: Input should be a valid dictionary"


def _text_refusals(block: dict[str, Any]) -> Iterator[str]:
    if not block.get("text"):
        yield "messages: text content blocks must be non-empty"
    elif not block["text"].strip():
        yield "messages: text content blocks must contain non-whitespace text"


def _thinking_refusals(where: str, block: dict[str, Any]) -> Iterator[str]:
    if block.get("signature") is None:
        yield f"{where}.thinking.signature: Field required"
    elif not block["signature"]:
        yield f"{where}: Invalid `signature` in `thinking` block"


def _id_refusals(where: str, call_id: str) -> Iterator[str]:
    if not _ID.fullmatch(call_id):
        yield f"{where}: String should match pattern '^[a-zA-Z0-9_-]+$'"


def _image_refusals(where: str, source: dict[str, Any]) -> Iterator[str]:
    if source.get("type") == "base64" and source.get("media_type") not in _IMAGES:
        known = ", ".join(f"'{kind}'" for kind in _IMAGES[:-1])
        yield (
            f"{where}.image.source.base64.media_type: Input should be {known} or '{_IMAGES[-1]}'"
        )


def _pairing_refusals(turns: list[_Turn]) -> Iterator[str]:
    seen: set[str] = set()
    for position, turn in enumerate(turns):
        before = turns[position - 1] if position else None
        after = turns[position + 1] if position + 1 < len(turns) else None
        if turn.role == "user":
            called = [block["id"] for block in before.of_type("tool_use")] if before else []
            yield from _result_refusals(turn, called)
            continue
        calls = [block["id"] for block in turn.of_type("tool_use")]
        if len(set(calls)) < len(calls) or seen.intersection(calls):
            yield "messages: `tool_use` ids must be unique"
        seen.update(calls)
        answered = _leading_results(after) if after else set()
        unanswered = [call_id for call_id in calls if call_id not in answered]
        if unanswered:
            yield (
                f"messages.{turn.index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(unanswered)}. Each `tool_use` block must have a "
                "corresponding `tool_result` block in the next message."
            )


def _result_refusals(turn: _Turn, called: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for position, block in enumerate(turn.blocks):
        if block.get("type") != "tool_result":
            continue
        where = f"messages.{turn.index}.content.{position}"
        call_id = block["tool_use_id"]
        if call_id not in called:
            yield (
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the "
                "previous message."
            )
        if call_id in seen:
            yield (
                f"{where}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call_id}"
            )
        seen.add(call_id)


def _leading_results(turn: _Turn) -> set[str]:
    """The results at the start of the turn: one after other content does not count."""
    found: set[str] = set()
    for block in turn.blocks:
        if block.get("type") != "tool_result":
            break
        found.add(block["tool_use_id"])
    return found


def _thinking_start_refusals(turns: list[_Turn]) -> Iterator[str]:
    """The tool loop that is still going on must start with thinking; earlier ones need not."""
    start: _Turn | None = None
    for turn in reversed(turns):
        if turn.role == "user" and not turn.of_type("tool_result"):
            break
        if turn.role == "assistant":
            start = turn
    if start is None or not start.of_type("tool_use"):
        return
    found = start.blocks[0].get("type")
    if found not in _THINKING_TYPES:
        yield (
            f"messages.{start.index}.content.0.type: Expected `thinking` or `redacted_thinking`, "
            f"but found `{found}`. When `thinking` is enabled, a final `assistant` message must "
            "start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks). To avoid this requirement, disable `thinking`. "
            + _THINKING_DOCS
        )


def _turns(messages: list[dict[str, Any]]) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "system":
            continue
        if turns and turns[-1].role == role:
            turns[-1].blocks.extend(_blocks(message))
        else:
            turns.append(_Turn(index, role, list(_blocks(message))))
    return turns


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
