"""Checks whether arguments that a person gives for a call match the tool's JSON schema.

Only the keywords that ``tool_source`` generates are checked; others are ignored, and the tool checks the rest itself.
"""

from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
# Deeper than real schemas; a bound for recursive ones.
_MAX_DEPTH = 32


def find_fault(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> str | None:
    """The first fault of the arguments; None if they match."""
    properties = parameters.get("properties") or {}
    unknown = sorted(arguments.keys() - properties.keys())
    if unknown:
        return f"there is no argument '{unknown[0]}'"
    return _find_fault(dict(arguments), parameters, parameters, "", 0)


def _find_fault(
    value: object, schema: object, root: Mapping[str, Any], path: str, depth: int
) -> str | None:
    schema = _resolve(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    where = f"'{path}'" if path else "the whole"
    if isinstance(choices := schema.get("anyOf"), list):
        found = [_find_fault(value, choice, root, path, depth + 1) for choice in choices]
        if found and all(found):
            return found[0]
    if not _has_type(value, schema.get("type")):
        return f"{where} must be of type {schema['type']}"
    if isinstance(allowed := schema.get("enum"), list) and value not in allowed:
        return f"{where} must be one of {allowed}"
    return _find_inner_fault(value, schema, root, path, depth)


def _find_inner_fault(
    value: object, schema: Mapping[str, Any], root: Mapping[str, Any], path: str, depth: int
) -> str | None:
    inner: list[tuple[str, object, object]] = []
    if isinstance(value, dict):
        missing = [name for name in schema.get("required") or () if name not in value]
        if missing:
            return f"'{_join_path(path, missing[0])}' is missing"
        properties = schema.get("properties") or {}
        inner = [(_join_path(path, name), value[name], properties.get(name)) for name in value]
    elif isinstance(value, list):
        inner = [(f"{path}[{n}]", item, schema.get("items")) for n, item in enumerate(value)]
    found = (_find_fault(item, its, root, name, depth + 1) for name, item, its in inner)
    return next((text for text in found if text), None)


def _has_type(value: object, wanted: object) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list):
        return True
    # In Python bool is a subclass of int; in JSON a boolean is not a number.
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES.get(name, (object,))) for name in names)


def _resolve(schema: object, root: Mapping[str, Any]) -> object:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: object = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
