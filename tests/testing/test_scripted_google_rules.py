"""What Google's generateContent refuses, and what it does not."""

from typing import Any

import pytest

from holdfast.testing.wires.google_rules import refusal

Content = dict[str, Any]

CALL: Content = {"functionCall": {"name": "roll", "args": {}}}
SIGNED: Content = CALL | {"thoughtSignature": "c2lnbmVk"}
RETURNED: Content = {"functionResponse": {"name": "roll", "response": {"output": 7}}}


def user(*parts: Content) -> Content:
    return {"role": "user", "parts": list(parts) or [{"text": "hi"}]}


def model(*parts: Content) -> Content:
    return {"role": "model", "parts": list(parts) or [{"text": "hello"}]}


def check_request(*contents: Content, **fields: Any) -> str:
    return refusal({"model": "gemini-2.5-flash", "contents": list(contents)} | fields) or "accepted"


@pytest.mark.parametrize(
    "contents",
    [
        [user()],
        [{"parts": [{"text": "hi"}]}],
        [user(), user()],
        [user(), model(), user()],
        [user(), model(CALL), user(RETURNED)],
        [user(), model({"text": "I roll."}, CALL, CALL), user(RETURNED, RETURNED)],
        [user(), model(CALL), user(RETURNED), user(), model(CALL), user(RETURNED)],
        [user(), model(CALL), user(RETURNED), model(CALL), user(RETURNED)],
    ],
)
def test_a_sound_history_is_accepted(contents: list[Content]) -> None:
    assert check_request(*contents) == "accepted"


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ([], "contents is not specified"),
        ([{"role": "assistant", "parts": [{"text": "hi"}]}], "valid role: user, model"),
        ([{"role": "user", "parts": []}], "contents.parts must not be empty"),
        ([user({"thought": True})], "must have one initialized field"),
        ([user(), model(CALL), user()], "number of function response parts"),
        ([user(), model(CALL, CALL), user(RETURNED)], "number of function response parts"),
        ([user(), user(RETURNED)], "immediately after a function call turn"),
        ([model(CALL), user(RETURNED)], "immediately after a user turn"),
        ([user(), model(), model(CALL), user(RETURNED)], "immediately after a user turn"),
        ([user(), model()], "end with a user role"),
    ],
)
def test_an_unsound_history_is_refused(contents: list[Content], reason: str) -> None:
    assert reason in check_request(*contents)


@pytest.mark.parametrize("name", ["1st", "with space", "x" * 65, ""])
def test_a_function_has_a_proper_name(name: str) -> None:
    told = check_request(user(), tools=[{"functionDeclarations": [{"name": name}]}])
    assert "function_declarations[0].name: [FIELD_INVALID]" in told


def test_a_newer_model_wants_its_signatures_back() -> None:
    asked = {"model": "gemini-3-pro-preview"}
    assert "missing a thought_signature" in check_request(
        user(), model(CALL), user(RETURNED), **asked
    )
    # The first call of an answer has it, and turns that are over are not looked at.
    assert (
        check_request(user(), model(SIGNED, CALL), user(RETURNED, RETURNED), **asked) == "accepted"
    )
    assert check_request(user(), model(CALL), user(RETURNED), user(), **asked) == "accepted"
