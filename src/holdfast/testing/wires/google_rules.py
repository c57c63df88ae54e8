"""The requests that Google's generateContent refuses, in its words. Pure: body in, reason out."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.testing.wires.wire import Body

_ROLES = ("user", "model")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
# From this edition on a call must bring back the signature of the thought that it came of.
_SIGNED_MODELS = re.compile(r"gemini-([3-9]|\d\d)")


def refusal(body: Body) -> str | None:
    """Return the first reason to refuse, or None."""
    return next(_refusals(body), None)


def _refusals(body: Body) -> Iterator[str]:
    contents = body.get("contents")
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
        return
    for number, tool in enumerate(body.get("tools") or ()):
        yield from _name_refusals(number, tool.get("functionDeclarations") or ())
    for index, content in enumerate(contents):
        if content.get("role", "user") not in _ROLES:
            yield "Please use a valid role: user, model."
        if not content.get("parts"):
            yield (
                f"* GenerateContentRequest.contents[{index}].parts: "
                "contents.parts must not be empty."
            )
        for part in content["parts"]:
            if not part.keys() - {"thought", "thoughtSignature"}:
                yield (
                    f"* GenerateContentRequest.contents[{index}].parts[0].data: "
                    "required oneof field 'data' must have one initialized field"
                )
    yield from _turn_refusals(contents)
    if _SIGNED_MODELS.match(str(body.get("model"))):
        yield from _signature_refusals(contents)


def _name_refusals(tool: int, declared: Sequence[dict[str, Any]]) -> Iterator[str]:
    for index, function in enumerate(declared):
        if not _NAME.fullmatch(function.get("name", "")):
            yield (
                f"* GenerateContentRequest.tools[{tool}].function_declarations[{index}].name: "
                "[FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. "
                "Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or "
                "dashes (-), with a maximum length of 64."
            )


def _turn_refusals(contents: list[dict[str, Any]]) -> Iterator[str]:
    before: dict[str, Any] | None = None
    for content in contents:
        calls, returns = _count(content, "functionCall"), _count(content, "functionResponse")
        called = _count(before, "functionCall") if before else 0
        if calls and (before is None or before.get("role") == "model"):
            yield (
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )
        if returns and not called:
            yield (
                "Please ensure that function response turn comes immediately after a function "
                "call turn."
            )
        if called != returns:
            yield (
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        before = content
    if before is not None and before.get("role") == "model":
        yield "Please ensure that multiturn requests end with a user role or a function response."


def _signature_refusals(contents: list[dict[str, Any]]) -> Iterator[str]:
    """Only the turn that is going on is checked, and of each answer only the first call."""
    for index in range(len(contents) - 1, -1, -1):
        content = contents[index]
        if content.get("role") != "model" and not _count(content, "functionResponse"):
            return
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"].get("name")
            yield (
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to work correctly, and missing thought_signature may lead to "
                f"degraded model performance. Additional data, function call `default_api:{name}` "
                f", position {index + 1}."
            )


def _count(content: dict[str, Any], kind: str) -> int:
    return sum(kind in part for part in content["parts"])
