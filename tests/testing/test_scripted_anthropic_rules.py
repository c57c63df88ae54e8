"""What Anthropic messages refuses, and what it does not."""

from typing import Any

import pytest

from holdfast.testing.wires.anthropic_rules import refusal

Block = dict[str, Any]
Message = dict[str, Any]

USER: Message = {"role": "user", "content": "hi"}
TEXT: Block = {"type": "text", "text": "hello"}
THINKING: Block = {"type": "thinking", "thinking": "hm", "signature": "sig"}
REDACTED: Block = {"type": "redacted_thinking", "data": "x"}
MARKED = {"cache_control": {"type": "ephemeral"}}
ENABLED = {"type": "enabled", "budget_tokens": 1024}


def use(call_id: str) -> Block:
    return {"type": "tool_use", "id": call_id, "name": "roll", "input": {}}


def result(call_id: str) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "7"}


def image(media_type: str) -> Block:
    source = {"type": "base64", "media_type": media_type, "data": "AAAA"}
    return {"type": "image", "source": source}


def user(*blocks: Block) -> Message:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Block) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def check_request(*messages: Message, **fields: Any) -> str:
    body = {"model": "claude", "max_tokens": 4096, "messages": list(messages)} | fields
    return refusal(body) or "accepted"


@pytest.mark.parametrize(
    "history",
    [
        [USER],
        [USER, USER],
        [USER, assistant(TEXT), USER],
        [USER, assistant(TEXT, use("a"), use("b")), user(result("b"), result("a"), TEXT)],
        [USER, assistant(use("a")), user(result("a")), user(TEXT)],
        [USER, assistant(use("a"), use("b")), user(result("a")), user(result("b"))],
        [USER, assistant(use("a")), user(result("a")), assistant(use("b")), user(result("b"))],
        [USER, {"role": "assistant", "content": "The answer is"}],
        [USER, {"role": "assistant", "content": ""}],
    ],
)
def test_a_sound_history_is_accepted(history: list[Message]) -> None:
    assert check_request(*history) == "accepted"


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([], "at least one message is required"),
        ([assistant(TEXT), USER], 'first message must use the "user" role'),
        ([{"role": "tool", "content": "hi"}], "messages.0.role"),
        ([user()], "messages.0: all messages must have non-empty content"),
        ([user({"type": "text", "text": ""})], "text content blocks must be non-empty"),
        ([user({"type": "text", "text": " "})], "must contain non-whitespace text"),
        (
            [USER, assistant(use("a"))],
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a",
        ),
        ([USER, assistant(use("a")), USER], "immediately after: a"),
        ([USER, assistant(use("a"), use("b")), user(result("a"))], "immediately after: b"),
        ([USER, assistant(use("a")), user(TEXT, result("a"))], "immediately after: a"),
        (
            [user(result("a"))],
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a",
        ),
        (
            [USER, assistant(use("a")), user(result("a")), assistant(TEXT), user(result("a"))],
            "messages.4.content.0: unexpected `tool_use_id`",
        ),
        (
            [USER, assistant(use("a")), user(result("a"), result("a"))],
            "each tool_use must have a single result",
        ),
        ([USER, assistant(use("a"), use("a")), user(result("a"))], "ids must be unique"),
        (
            [USER, assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))],
            "ids must be unique",
        ),
        ([USER, assistant(use("a b")), user(result("a b"))], "tool_use.id: String should match"),
        (
            [USER, assistant(use("a") | {"input": "{}"}), user(result("a"))],
            "tool_use.input: Input should be a valid dictionary",
        ),
        (
            [USER, assistant({"type": "thinking", "thinking": "hm"}, TEXT), USER],
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            [USER, assistant(THINKING | {"signature": ""}, TEXT), USER],
            "Invalid `signature` in `thinking` block",
        ),
        ([user(TEXT | MARKED) for _ in range(5)], "A maximum of 4 blocks with cache_control"),
        (
            [USER, assistant(THINKING | MARKED, TEXT), USER],
            "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        ),
        (
            [user(image("image/bmp"))],
            "image.source.base64.media_type: Input should be 'image/jpeg'",
        ),
        (
            [USER, {"role": "assistant", "content": "The answer is "}],
            "final assistant content cannot end with trailing whitespace",
        ),
    ],
)
def test_a_broken_history_is_refused_with_its_reason(history: list[Message], reason: str) -> None:
    assert reason in check_request(*history)


@pytest.mark.parametrize("field", ["model", "max_tokens", "messages"])
def test_a_required_field_is_missed(field: str) -> None:
    body: dict[str, Any] = {"model": "claude", "max_tokens": 10, "messages": [USER]}
    del body[field]
    assert refusal(body) == f"{field}: Field required"


def test_a_tool_with_a_bad_name_is_refused() -> None:
    assert "tools.0.custom.name" in check_request(USER, tools=[{"name": "roll.dice"}])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"temperature": 0.5}, "`temperature` may only be set to 1"),
        ({"max_tokens": 1024}, "`max_tokens` must be greater than `thinking.budget_tokens`"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens: Field required"),
        ({"temperature": 1}, "accepted"),
    ],
)
def test_thinking_sets_bounds_on_the_other_options(fields: dict[str, Any], reason: str) -> None:
    assert reason in check_request(USER, **({"thinking": ENABLED} | fields))


@pytest.mark.parametrize("first", [THINKING, REDACTED])
def test_with_thinking_a_tool_loop_starts_with_thinking(first: Block) -> None:
    history = [USER, assistant(first, use("a")), user(result("a"))]
    assert check_request(*history, thinking=ENABLED) == "accepted"


def test_with_thinking_a_tool_loop_without_it_is_refused() -> None:
    history = [USER, assistant(use("a")), user(result("a"))]
    assert check_request(*history) == "accepted"
    assert check_request(*history, thinking=ENABLED).startswith(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, "
        "but found `tool_use`."
    )


def test_only_the_start_of_the_tool_loop_that_goes_on_needs_thinking() -> None:
    earlier = [USER, assistant(use("a")), user(result("a")), assistant(TEXT)]
    now = [USER, assistant(THINKING, use("b")), user(result("b"))]
    on = [assistant(use("c")), user(result("c"))]
    assert check_request(*earlier, *now, *on, thinking=ENABLED) == "accepted"
    assert check_request(*earlier, USER, thinking=ENABLED) == "accepted"
