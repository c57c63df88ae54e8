"""The description of the API with what requests may say besides: 1 or "yes" for true, "5" for 5, seconds for a date.

V1 reads values so, and so does Holdfast. The published description leaves it out, because no client should begin with
it. A fuzzer that looks for wrong input which is accepted has to know it.
"""

from copy import deepcopy
from typing import Any, Final

_SUFFIX: Final = "-lax"

_TRUTHS: Final = ("0", "1", "on", "off", "t", "f", "true", "false", "y", "n", "yes", "no")
_NUMBER: Final = {"type": "string", "pattern": r"^\s*[+-]?[0-9_]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*$"}
# By the type of a value: what is taken for one besides.
_ALTERNATIVES: Final[dict[str, list[dict[str, Any]]]] = {
    "boolean": [
        {"enum": [0, 1]},
        {"type": "string", "pattern": f"^({'|'.join(_TRUTHS)})$"},
    ],
    "integer": [{"type": "boolean"}, _NUMBER],
    "number": [{"type": "boolean"}, _NUMBER],
}
_DATE_ALTERNATIVES: Final[list[dict[str, Any]]] = [{"type": "number"}, {"type": "string"}]


def loosen_requests(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of the OpenAPI document in which bodies and parameters may be written like that. Answers stay strict."""
    loose = deepcopy(document)
    schemas = loose["components"]["schemas"]
    for name, schema in list(schemas.items()):
        schemas[name + _SUFFIX] = _loosen(deepcopy(schema))
    for operations in loose["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _loosen_parameter(parameter)
            for media in operation.get("requestBody", {}).get("content", {}).values():
                media["schema"] = _loosen(media["schema"])
    return loose


def _loosen_parameter(parameter: dict[str, Any]) -> Any:
    """In a query every value is a text, one text is also a list, and of several texts the last is taken."""
    if parameter["in"] == "query" and _takes_any_text(parameter["schema"]):
        return {}
    return _loosen(parameter["schema"])


def _takes_any_text(schema: dict[str, Any]) -> bool:
    match schema:
        case {"anyOf": [*choices]}:
            return any(_takes_any_text(choice) for choice in choices)
        case {"type": "array", "items": items}:
            return _takes_any_text(items)
        case {"type": "string"}:
            return not schema.keys() & {"pattern", "enum", "format"}
        case _:
            return False


def _loosen(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_loosen(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("contentMediaType") == "application/octet-stream":
        # The parts of an upload are bytes: nothing that a fuzzer puts there is of another type.
        return {}
    if isinstance(schema.get("$ref"), str):
        return schema | {"$ref": schema["$ref"] + _SUFFIX}
    loosened = {key: _loosen_keyword(key, value) for key, value in schema.items()}
    alternatives = _find_alternatives(schema)
    return {"anyOf": [loosened, *alternatives]} if alternatives else loosened


def _loosen_keyword(key: str, value: Any) -> Any:
    match key:
        # The keys are names of fields, which may be called "type" or "format".
        case "properties":
            return {name: _loosen(inner) for name, inner in value.items()}
        case "anyOf" | "oneOf" | "allOf" | "items" | "prefixItems" | "additionalProperties":
            return _loosen(value)
        case "discriminator":
            mapping = {name: ref + _SUFFIX for name, ref in value.get("mapping", {}).items()}
            return value | {"mapping": mapping}
        case _:
            return value


def _find_alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    if schema.get("format") == "date-time":
        return _DATE_ALTERNATIVES
    if "enum" in schema or "const" in schema:
        return []
    return _ALTERNATIVES.get(schema.get("type", ""), [])
