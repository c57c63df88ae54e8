"""Whether providers accept the schema of a tool, and if not, why (tools-v1 §1.5). The texts are V1's."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

SIMPLE_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null"})

MAX_REASONS: Final = 50
_MAX_REASON_CHARS: Final = 500

_ALL_TYPES: Final = SIMPLE_TYPES | {"object", "array"}
_CHOICES: Final = ("anyOf", "oneOf", "allOf")


class SchemaHealth(StrEnum):
    STRICT_COMPLIANT = "STRICT_COMPLIANT"
    # Fine, but a provider cannot be asked to keep exactly to it.
    NON_STRICT_ONLY = "NON_STRICT_ONLY"
    # A provider would refuse every request with this tool.
    INVALID = "INVALID"


def check_health(schema: object) -> tuple[SchemaHealth, tuple[str, ...]]:
    """Judge a normalised schema. Each reason says where it is."""
    if not isinstance(schema, dict):
        return SchemaHealth.INVALID, ("Top-level schema must be a dict",)
    if schema.get("type") != "object":
        text = "Top-level schema 'type' must be 'object' for OpenAI tools"
        return SchemaHealth.INVALID, (text,)
    check = _Check()
    check.visit(schema, "root")
    return check.health, tuple(check.reasons)


def list_types(node: Mapping[str, Any]) -> Sequence[Any]:
    """The types that a schema names: one, or several in a list."""
    kind = node.get("type")
    if kind is None:
        return ()
    return kind if isinstance(kind, list) else (kind,)


class _Check:
    """One walk through a schema. Its depth is bounded, since a schema's is."""

    def __init__(self) -> None:
        self.health = SchemaHealth.STRICT_COMPLIANT
        self.reasons: list[str] = []

    def visit(self, node: Mapping[str, Any], path: str) -> None:
        kinds = list_types(node) or self._infer_types(node, path)
        where = " in type array" if isinstance(node.get("type"), list) else ""
        for kind in kinds:
            if not isinstance(kind, str) or kind not in _ALL_TYPES:
                self._mark_invalid(path, f"Invalid type '{kind}'{where}")
        if "object" in kinds:
            self._visit_object(node, path)
        if "array" in kinds:
            self._visit_items(node, path)
        for keyword in _CHOICES:
            if keyword in node:
                self._visit_choices(node[keyword], keyword, path)

    def _infer_types(self, node: Mapping[str, Any], path: str) -> Sequence[Any]:
        if "properties" in node:
            return ("object",)
        if "items" in node:
            return ("array",)
        if "$ref" in node:
            self._mark_non_strict(
                path, "'$ref' is not replaced, since it is recursive or too large"
            )
        elif not any(keyword in node for keyword in _CHOICES):
            self._mark_invalid(path, "Missing 'type'")
        return ()

    def _visit_object(self, node: Mapping[str, Any], path: str) -> None:
        properties = node.get("properties", {})
        if not isinstance(properties, dict):
            self._mark_invalid(path, "'properties' must be a dict for objects")
            return
        if "additionalProperties" not in node:
            self._mark_non_strict(path, "'additionalProperties' not explicitly set")
        elif node["additionalProperties"] is not False:
            self._mark_non_strict(path, "'additionalProperties' is not false (free-form object)")
        required = node.get("required", [])
        if isinstance(required, list):
            self._check_required(required, properties, path)
        else:
            self._mark_invalid(path, "'required' must be a list if present")
        for name, item in properties.items():
            self._visit_part(item, f"{path}.properties.{name}")

    def _check_required(
        self, required: Sequence[Any], properties: Mapping[str, Any], path: str
    ) -> None:
        for name in required:
            if not isinstance(name, str) or name not in properties:
                self._mark_invalid(path, f"required contains '{name}' not found in properties")
            elif (empty := _find_empty(properties[name])) is not None:
                self._mark_invalid(
                    path, f"required property '{name}' allows empty {empty} (OpenAI will reject)"
                )

    def _visit_items(self, node: Mapping[str, Any], path: str) -> None:
        items = node.get("items")
        if items is None:
            self._mark_invalid(path, "'items' must be defined for arrays in strict mode")
        elif not isinstance(items, dict):
            self._mark_invalid(path, "'items' must be a schema dict for arrays")
        else:
            self.visit(items, f"{path}.items")

    def _visit_choices(self, choices: object, keyword: str, path: str) -> None:
        if not isinstance(choices, list):
            self._mark_invalid(path, f"'{keyword}' must be a list")
            return
        for index, choice in enumerate(choices):
            self._visit_part(choice, f"{path}.{keyword}[{index}]")

    def _visit_part(self, part: object, path: str) -> None:
        if isinstance(part, dict):
            self.visit(part, path)
        else:
            self._mark_invalid(path, "Not a valid schema dict")

    def _mark_invalid(self, path: str, reason: str) -> None:
        self.health = SchemaHealth.INVALID
        self._add(path, reason)

    def _mark_non_strict(self, path: str, reason: str) -> None:
        if self.health is SchemaHealth.STRICT_COMPLIANT:
            self.health = SchemaHealth.NON_STRICT_ONLY
        self._add(path, reason)

    def _add(self, path: str, reason: str) -> None:
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(f"{path}: {reason}"[:_MAX_REASON_CHARS])


def _find_empty(schema: object) -> str | None:
    """``object`` or ``array`` if the schema can only be, or may well be, an empty one."""
    if not isinstance(schema, dict):
        return None
    kinds = list_types(schema)
    is_closed = not schema.get("required") and schema.get("additionalProperties") is False
    if "object" in kinds and is_closed:
        return "object"
    if "array" in kinds and "items" not in schema and not schema.get("minItems"):
        return "array"
    return None
