"""Whether a person's arguments fit a tool's schema."""

from typing import Any

import pytest

from holdfast.core.arguments import find_fault

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "times": {"type": "integer"},
        "mood": {"enum": ["glad", "sad"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "anything": {},
    },
    "required": ["text"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "next": {"$ref": "#/$defs/Place"}},
            "required": ["x"],
        }
    },
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "hi"},
        {"text": "", "times": 3, "mood": "sad", "either": None, "anything": [1]},
        {"text": "hi", "places": [{"x": 1.5}, {"x": 2, "next": {"x": 3}}]},
    ],
)
def test_what_fits_has_no_fault(arguments: dict[str, Any]) -> None:
    assert find_fault(arguments, PARAMETERS) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'text' is missing"),
        ({"text": 3}, "'text' must be of type string"),
        ({"text": "", "times": True}, "'times' must be of type integer"),
        ({"text": "", "times": 1.5}, "'times' must be of type integer"),
        ({"text": "", "mood": "odd"}, "'mood' must be one of ['glad', 'sad']"),
        ({"text": "", "either": 3}, "'either' must be of type string"),
        ({"text": "", "places": [{"x": 1}, {}]}, "'places[1].x' is missing"),
        ({"text": "", "places": [{"x": 1, "next": {"x": ""}}]}, "'places[0].next.x' must be"),
        ({"text": "", "other": 1}, "there is no argument 'other'"),
    ],
)
def test_what_does_not_fit_is_named(arguments: dict[str, Any], words: str) -> None:
    assert (find_fault(arguments, PARAMETERS) or "").startswith(words)


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    parameters = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert find_fault({"a": 1}, parameters) is None
