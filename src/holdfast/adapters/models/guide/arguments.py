"""Parses a tool's arguments from plain text: ``num_sides 16``, ``num_sides=16``, ``{"num_sides": 16}``. Pure."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

_LEADING_WORDS = re.compile(
    r"^(?:\s|[(=:,;]|\b(?:with|of|as|is|to|on|for|equals|set|the|arguments?)\b)+", re.IGNORECASE
)
_TRAILING_WORDS = re.compile(
    r"(?:\s|[),;.!?]|\b(?:and|then|also|please|call|use|run)\b)+$", re.IGNORECASE
)
_QUOTED = re.compile(r"""^(["'“])(.*?)(["'”])""", re.DOTALL)
_YES = {"true", "yes", "on", "1"}
_NO = {"false", "no", "off", "0"}


class ParsedArguments(Struct, frozen=True):
    """The arguments that were found, and those that are missing or cannot be parsed."""

    arguments: dict[str, Any]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class Mention(Struct, frozen=True):
    """A name in a text, with the text before it, and the text from it to the next name."""

    name: str
    before: str
    words: str


def find_mentions(text: str, names: Iterable[str]) -> list[Mention]:
    longest_first = sorted(names, key=len, reverse=True)
    if not longest_first:
        return []
    any_name = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)")
    found = list(any_name.finditer(text))
    starts = [match.start() for match in found] + [len(text)]
    return [
        Mention(match.group(1), text[: match.start()], text[match.end() : end])
        for match, end in zip(found, starts[1:], strict=True)
    ]


def parse_arguments(words: str, schema: Mapping[str, Any]) -> ParsedArguments:
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    required = schema.get("required") or []
    given = _parse_json_object(words)
    if given is None:
        given = _parse_named(words, properties) or _parse_positional(words, properties, required)
    arguments: dict[str, Any] = {}
    unreadable: list[str] = []
    for name, value in given.items():
        try:
            arguments[name] = _coerce(value, properties.get(name, {}))
        except ValueError:
            unreadable.append(name)
    missing = tuple(name for name in required if name not in given)
    return ParsedArguments(arguments, missing, tuple(unreadable))


def _parse_json_object(words: str) -> dict[str, Any] | None:
    start = words.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(words[start:])
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _parse_named(words: str, properties: Mapping[str, Any]) -> dict[str, str]:
    """A property's value is the text from its name to the next property's name."""
    return {mention.name: _trim(mention.words) for mention in find_mentions(words, properties)}


def _parse_positional(
    words: str, properties: Mapping[str, Any], required: list[str]
) -> dict[str, str]:
    """``roll_dice 16``: a value without a name belongs to the only argument."""
    names = required or list(properties)
    value = _trim(words)
    return {names[0]: value} if len(names) == 1 and value else {}


def _trim(words: str) -> str:
    value = _LEADING_WORDS.sub("", words)
    quoted = _QUOTED.match(value)
    if quoted is not None:
        return quoted.group(2)
    if value.startswith("["):
        return value[: value.rfind("]") + 1]
    return _TRAILING_WORDS.sub("", value)


def _coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value in the type of the schema; ValueError if it does not fit."""
    if not isinstance(value, str):
        return value
    choices = schema.get("enum")
    if choices:
        return _parse_choice(value, choices)
    for kind in _schema_types(schema):
        try:
            return _BY_TYPE[kind](value)
        except (ValueError, KeyError):
            continue
    raise ValueError(value)


def _schema_types(schema: Mapping[str, Any]) -> list[str]:
    """The schema's types; text last, because every value is text."""
    options = schema.get("anyOf") or schema.get("oneOf") or [schema]
    kinds = [kind for option in options for kind in _as_list(option.get("type", "string"))]
    return sorted(kinds, key=lambda kind: kind == "string")


def _as_list(kind: str | list[str]) -> list[str]:
    return [kind] if isinstance(kind, str) else kind


def _parse_choice(value: str, choices: list[Any]) -> Any:
    for choice in choices:
        if str(choice).lower() == value.lower():
            return choice
    raise ValueError(value)


def _parse_boolean(value: str) -> bool:
    word = _first_word(value).lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError(value)


def _parse_array(value: str) -> list[Any]:
    if value.startswith("["):
        read_as = json.loads(value)
        return read_as if isinstance(read_as, list) else [read_as]
    return [item.strip() for item in value.split(",") if item.strip()]


def _parse_null(value: str) -> None:
    if value.lower() not in {"null", "none"}:
        raise ValueError(value)


def _first_word(value: str) -> str:
    words = value.split(maxsplit=1)
    return words[0].rstrip(",;.)") if words else ""


_BY_TYPE: dict[str, Callable[[str], Any]] = {
    "array": _parse_array,
    "boolean": _parse_boolean,
    "integer": lambda value: int(_first_word(value)),
    "null": _parse_null,
    "number": lambda value: float(_first_word(value)),
    "object": json.loads,
    "string": str,
}
