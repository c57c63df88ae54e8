"""Strict schemas of tools: every property is required, and none besides them is allowed (tools-v1 §1.5).

What was optional may be null instead. A model gives null for what it leaves out, so such nulls are not arguments.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.core.mcp_schema import STATUS_KEY
from holdfast.core.mcp_schema_health import SchemaHealth

_UNIONS: Final = ("anyOf", "oneOf")
_DEFINITIONS: Final = ("$defs", "definitions")
_SIMPLE_TYPES: Final = frozenset({"string", "number", "integer", "boolean"})
_NULL: Final = {"type": "null"}


def allows_strict(json_schema: Mapping[str, Any]) -> bool:
    """Whether the schema of a tool may be sent as a strict one. Only tools of MCP servers say that theirs may not."""
    return json_schema.get(STATUS_KEY) != SchemaHealth.NON_STRICT_ONLY


def require_all(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as a strict one."""
    made = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        required = _required_names(schema)
        made["properties"] = {
            name: _strict(item) if name in required else _nullable(_strict(item), schema)
            for name, item in properties.items()
        }
        made["required"] = list(properties)
        made["additionalProperties"] = False
    if isinstance(schema.get("items"), dict):
        made["items"] = _strict(schema["items"])
    for key in (*_UNIONS, "allOf"):
        if isinstance(schema.get(key), list):
            made[key] = [_strict(option) for option in schema[key]]
    for key in _DEFINITIONS:
        if isinstance(schema.get(key), dict):
            made[key] = {name: _strict(item) for name, item in schema[key].items()}
    return made


def drop_nulls(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without the nulls of optional properties that the schema does not allow to be null."""
    return _drop_nulls(arguments, schema, schema)


def _strict(schema: Any) -> Any:
    return require_all(schema) if isinstance(schema, dict) else schema


def _nullable(schema: Any, root: Mapping[str, Any]) -> Any:
    if not isinstance(schema, dict) or _allows_null(schema, root):
        return schema
    if isinstance(schema.get("anyOf"), list):
        return {**schema, "anyOf": [*schema["anyOf"], _NULL]}
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if all(isinstance(item, str) and item in _SIMPLE_TYPES for item in kinds) and (
        "const" not in schema
    ):
        made = {**schema, "type": [*kinds, "null"]}
        if isinstance(schema.get("enum"), list):
            made["enum"] = [*schema["enum"], None]
        return made
    described = {key: schema[key] for key in ("description", "title") if key in schema}
    return {**described, "anyOf": [schema, _NULL]}


def _allows_null(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    schema = _resolve(schema, root)
    if "const" in schema:
        return schema["const"] is None
    if isinstance(schema.get("enum"), list):
        return None in schema["enum"]
    for key in _UNIONS:
        if isinstance(schema.get(key), list):
            return any(isinstance(item, dict) and _allows_null(item, root) for item in schema[key])
    kind = schema.get("type")
    if kind is None:
        return not any(key in schema for key in ("properties", "items", "allOf", "$ref"))
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _drop_nulls(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]
) -> dict[str, Any]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = _required_names(schema)
    return {
        name: _without_nulls(item, known.get(name), root)
        for name, item in value.items()
        if item is not None or name in required or _is_null_meant(known.get(name), root)
    }


def _is_null_meant(schema: Any, root: Mapping[str, Any]) -> bool:
    return not isinstance(schema, dict) or _allows_null(schema, root)


def _without_nulls(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return value
    schema = _resolve(schema, root)
    if isinstance(value, dict):
        option = next(_object_options(schema, value, root), None)
        return value if option is None else _drop_nulls(value, option, root)
    if isinstance(value, list):
        return [_without_nulls(item, schema.get("items"), root) for item in value]
    return value


def _object_options(
    schema: Mapping[str, Any], value: Mapping[str, Any], root: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """The schemas of objects that have all properties of the value."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and value.keys() <= properties.keys():
        yield schema
    for key in _UNIONS:
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            if isinstance(option, dict):
                yield from _object_options(_resolve(option, root), value, root)


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition that the schema refers to; the schema itself if it refers to none, or to one that refers further."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    for key in _DEFINITIONS:
        definitions = root.get(key)
        name = reference.removeprefix(f"#/{key}/")
        if isinstance(definitions, dict) and isinstance(definitions.get(name), dict):
            found: dict[str, Any] = definitions[name]
            return schema if "$ref" in found else found
    return schema


def _required_names(schema: Mapping[str, Any]) -> frozenset[str]:
    required = schema.get("required")
    names = required if isinstance(required, list) else ()
    return frozenset(name for name in names if isinstance(name, str))
