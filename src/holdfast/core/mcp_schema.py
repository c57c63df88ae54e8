"""The schema of a tool that an MCP server lists: made uniform, and judged by what providers accept (tools-v1 §1.5).

The schema is the server's, so it may be of any form and size: too large a one is refused before anything is done with it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from msgspec import Struct

from holdfast.core.mcp_schema_health import (
    SIMPLE_TYPES,
    SchemaHealth,
    check_health,
    list_types,
)
from holdfast.core.tool_source.schema import bounds_fault
from holdfast.core.tools import HEARTBEAT

STATUS_KEY: Final = "mcp:SCHEMA_STATUS"
WARNINGS_KEY: Final = "mcp:SCHEMA_WARNINGS"

# How many references may be followed within one another.
MAX_REFERENCES: Final = 10
# Beyond this many levels of schemas, references stay as they are.
MAX_INLINED_LEVELS: Final = 15
# How many schemas references may be replaced by, all in all.
MAX_INLINED: Final = 5_000

_DEFINITIONS: Final = ("$defs", "definitions")
_REFERENCE: Final = re.compile(r"#/(?:\$defs|definitions)/([^/]+)")


class CheckedSchema(Struct, frozen=True, kw_only=True):
    """``parameters`` is empty if the schema is not even an object, or too large to be stored."""

    parameters: dict[str, Any]
    health: SchemaHealth
    reasons: tuple[str, ...] = ()


def check_schema(schema: object) -> CheckedSchema:
    """The schema as it is stored, and whether providers accept it."""
    fault = bounds_fault(schema)
    if fault is not None:
        return CheckedSchema(
            parameters={},
            health=SchemaHealth.INVALID,
            reasons=(f"Top-level schema cannot be stored: {fault}",),
        )
    parameters = normalise(schema)
    health, reasons = check_health(parameters)
    return CheckedSchema(
        parameters=parameters if isinstance(parameters, dict) else {},
        health=health,
        reasons=reasons,
    )


def normalise(schema: object) -> object:
    """A uniform copy of a schema that is within the bounds of schemas. References are replaced by what they refer to,
    unless that would make it larger than these bounds."""
    if not isinstance(schema, dict):
        return schema
    inlined = _normalise_root(schema, _Normalising(schema, MAX_INLINED))
    if bounds_fault(inlined) is None:
        return inlined
    return _normalise_root(schema, _Normalising(schema, 0))


def _normalise_root(schema: dict[str, Any], normalising: "_Normalising") -> dict[str, Any]:
    root = schema
    if "$ref" not in root:
        root = {"type": "object", "properties": {}, **root}
    root = normalising.normalise(root, 0, ())
    root = _without_heartbeat({"type": "object", "properties": {}, **root})
    root.setdefault("additionalProperties", False)
    root.setdefault("required", [])
    for key in _DEFINITIONS:
        definitions = schema.get(key)
        if isinstance(definitions, dict):
            closing = _Normalising({}, 0)
            root[key] = {name: closing.normalise(item, 0, ()) for name, item in definitions.items()}
    return root


def _without_heartbeat(root: dict[str, Any]) -> dict[str, Any]:
    properties, required = root["properties"], root.get("required")
    if isinstance(properties, dict) and HEARTBEAT in properties:
        kept = {name: item for name, item in properties.items() if name != HEARTBEAT}
        root = {**root, "properties": kept}
    if isinstance(required, list) and HEARTBEAT in required:
        root = {**root, "required": [name for name in required if name != HEARTBEAT]}
    return root


class _Normalising:
    """Of one schema. ``budget``: how many more references may be replaced."""

    def __init__(self, root: Mapping[str, Any], budget: int) -> None:
        self._definitions = {
            name: item
            for key in _DEFINITIONS
            if isinstance(root.get(key), dict)
            for name, item in root[key].items()
        }
        self._budget = budget

    def normalise(self, node: Any, level: int, followed: tuple[str, ...]) -> Any:
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return self._normalise_reference(node, level, followed)
        made = dict(node)
        if isinstance(made.get("properties"), dict):
            made["properties"] = {
                name: self.normalise(item, level + 1, followed)
                for name, item in made["properties"].items()
            }
        if isinstance(made.get("items"), dict):
            made["items"] = self.normalise(made["items"], level + 1, followed)
        if isinstance(made.get("anyOf"), list):
            options = [self.normalise(option, level + 1, followed) for option in made["anyOf"]]
            made["anyOf"] = _deduplicate(options)
        # An object without any properties is free-form: closed, only {} could be given for it.
        if "properties" in made and "object" in (list_types(made) or ("object",)):
            made.setdefault("additionalProperties", False)
        return made

    def _normalise_reference(
        self, node: dict[str, Any], level: int, followed: tuple[str, ...]
    ) -> dict[str, Any]:
        name = _read_reference(node["$ref"])
        target = None if name is None else self._definitions.get(name)
        if name is None or not isinstance(target, dict):
            return {"type": "object", **node}
        is_inlined = (
            name not in followed
            and len(followed) < MAX_REFERENCES
            and level <= MAX_INLINED_LEVELS
            and self._budget > 0
        )
        if not is_inlined:
            return {"type": target["type"], **node} if "type" in target else node
        self._budget -= 1
        own = {key: value for key, value in node.items() if key != "$ref"}
        made: dict[str, Any] = self.normalise({**target, **own}, level, (*followed, name))
        return made


def _read_reference(reference: object) -> str | None:
    """The name of the definition that this refers to."""
    found = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    if found is None:
        return None
    return unquote(found.group(1)).replace("~1", "/").replace("~0", "~")


def _deduplicate(options: Sequence[Any]) -> list[Any]:
    """One option for each simple type. Of objects and arrays only equal ones are the same: others have another form."""
    kept: dict[str, Any] = {}
    for option in options:
        kind = option.get("type") if isinstance(option, dict) else None
        is_simple = isinstance(kind, str) and kind in SIMPLE_TYPES
        key = str(kind) if is_simple else json.dumps(option, sort_keys=True)
        if key not in kept or (is_simple and _is_more_exact(option, kept[key])):
            kept[key] = option
    return list(kept.values())


def _is_more_exact(option: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if ("format" in option) is not ("format" in other):
        return "format" in option
    return len(option) > len(other)
