"""A tool's JSON schema, and the limits for derived and supplied schemas.

A schema that passed `check_json_schema` can be encoded as JSON and is small enough to send to a model.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.errors import ToolSourceInvalid

Schema: TypeAlias = dict[str, Any]
"""One JSON schema object."""

MAX_NAME_CHARS = 48
"""Providers accept 64; the wire leaves room for a prefix (wire-v1 §2.5)."""

MAX_SCHEMA_DEPTH = 40
"""Levels of JSON nesting; far more than providers accept, far less than Python's recursion limit."""

MAX_SCHEMA_NODES = 5_000
"""The number of values of any type. Every model call sends the schema."""

MAX_SCHEMA_CHARS = 200_000
"""The length of all strings together, including keys."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # no NUL in PostgreSQL, no lone surrogates in UTF-8
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_LARGEST_INTEGER = 2**63 - 1  # what every JSON reader and both databases can hold


@dataclass(frozen=True, slots=True)
class ToolSchema:
    name: str
    description: str
    parameters: Schema

    def as_json_schema(self) -> Schema:
        """The flat form of wire-v1 §3.4."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }


def check_json_schema(schema: object) -> ToolSchema:
    """Check a caller's complete schema of a tool, `{name, description, parameters}`."""
    _check_bounds(schema)
    if not isinstance(schema, Mapping):
        raise _invalid_schema("it must be an object with name, description and parameters")
    name, description = schema.get("name"), schema.get("description")
    if not isinstance(name, str):
        raise _invalid_schema("'name' must be a string")
    if (fault := name_fault(name)) is not None:
        raise _invalid_schema(fault)
    if description is not None and not isinstance(description, str):
        raise _invalid_schema("'description' must be a string")
    parameters = schema.get("parameters")
    return ToolSchema(
        name, description or "", check_parameters({} if parameters is None else parameters)
    )


def check_parameters(schema: object) -> Schema:
    """Check a caller's schema of a tool's arguments and add missing keys."""
    _check_bounds(schema)
    if not isinstance(schema, Mapping):
        raise _invalid_schema("the parameters must be an object")
    if schema.get("type", "object") != "object":
        raise _invalid_schema("the parameters' 'type' must be 'object'")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping):
        raise _invalid_schema("'properties' must be an object")
    for name, subschema in properties.items():
        if not isinstance(subschema, Mapping | bool):
            raise _invalid_schema(f"property '{name}' must be an object")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise _invalid_schema("'required' must be a list of names")
    return {**schema, "type": "object", "properties": properties, "required": required}


def name_fault(name: str) -> str | None:
    """Why providers would refuse this name of a tool; None if they would not."""
    if len(name) > MAX_NAME_CHARS:
        return f"the name '{name[:MAX_NAME_CHARS]}…' has {len(name)} characters, more than {MAX_NAME_CHARS}"
    if not _NAME.fullmatch(name):
        return f"the name '{name}' may only have ASCII letters, digits, '_' and '-'"
    return None


def bounds_fault(schema: object) -> str | None:
    """Why this cannot be stored and sent as JSON; None if it can."""
    chars = 0
    for nodes, (value, depth) in enumerate(_walk_values(schema), start=1):
        chars += len(value) if isinstance(value, str) else 0
        if nodes > MAX_SCHEMA_NODES:
            return f"it has more than {MAX_SCHEMA_NODES} values"
        if chars > MAX_SCHEMA_CHARS:
            return f"its text is longer than {MAX_SCHEMA_CHARS} characters"
        if depth > MAX_SCHEMA_DEPTH:
            return f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels"
        if (fault := _scalar_fault(value)) is not None:
            return fault
    return None


def is_json_scalar(value: object) -> bool:
    return _scalar_fault(value) is None and not isinstance(value, Mapping | list)


def _check_bounds(schema: object) -> None:
    if (fault := bounds_fault(schema)) is not None:
        raise _invalid_schema(fault)


def _walk_values(schema: object) -> Iterator[tuple[object, int]]:
    """Each value and key with its depth. A stack, not recursion, because the input may be nested to any depth."""
    stack: list[tuple[object, int]] = [(schema, 0)]
    while stack:
        value, depth = stack.pop()
        yield value, depth
        if isinstance(value, Mapping):
            for key, inner in value.items():
                stack += [(key, depth + 1), (inner, depth + 1)]
        elif isinstance(value, list):
            stack += [(inner, depth + 1) for inner in value]


def _scalar_fault(value: object) -> str | None:
    match value:
        case str():
            if _UNSTORABLE.search(value):
                return "its text has a NUL or a lone surrogate"
        case float():
            if not math.isfinite(value):
                return f"{value} is not a JSON number"
        case int():
            if abs(value) > _LARGEST_INTEGER:
                return "it has an integer of more than 64 bits"
        case None | Mapping() | list():
            pass
        case _:
            return f"{type(value).__name__} is not a JSON type"
    return None


def _invalid_schema(fault: str) -> ToolSourceInvalid:
    return ToolSourceInvalid(f"Invalid json schema: {fault}")
