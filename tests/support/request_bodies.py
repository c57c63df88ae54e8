"""Request bodies made from the OpenAPI document: for each list and map that a body may have, one with so many entries."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
Build = Callable[[Any], Any]

# A nested schema that refers to itself is not followed further.
_MAX_DEPTH = 12
# What the schema does not say of these: nothing listens at this address, and callers may not name it.
_VALID = {"server_url": "http://127.0.0.1:9/mcp"}


@dataclass(frozen=True)
class Field:
    """A list or a map somewhere in a request. ``maximum`` is None if the document names none."""

    method: str
    path: str
    name: str
    maximum: int | None
    _build: Build
    _entries: Callable[[int], Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.name}"

    def body(self, count: int) -> Any:
        """A body that is valid but for the number of entries of this field."""
        return self._build(self._entries(count))


class RequestFields:
    def __init__(self, document: Schema) -> None:
        self._document = document

    def in_bodies(self) -> Iterator[Field]:
        for method, path, operation in self._operations():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield from self._walk(
                    (method, path), content["schema"], "body", lambda value: value
                )

    def in_queries(self) -> Iterator[Field]:
        for method, path, operation in self._operations():
            for parameter in operation.get("parameters", ()):
                name = f"?{parameter['name']}"
                yield from self._walk(
                    (method, path), parameter["schema"], name, lambda value: value
                )

    def _operations(self) -> Iterator[tuple[str, str, Schema]]:
        for path, methods in self._document["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def _walk(
        self, where: tuple[str, str], schema: Schema, name: str, build: Build, depth: int = 0
    ) -> Iterator[Field]:
        """``build`` puts a value in the place of this schema into a whole body."""
        if depth > _MAX_DEPTH:
            return
        schema = self._resolve(schema)
        for choice in _choices(schema):
            yield from self._walk(where, choice, name, build, depth + 1)
        if schema.get("type") == "array":
            yield Field(*where, name, schema.get("maxItems"), build, self._fill_list(schema))
            yield from self._walk(
                where, schema["items"], f"{name}[]", lambda value: build([value]), depth + 1
            )
        if _is_object(schema):
            yield from self._walk_object(where, schema, name, build, depth)

    def _walk_object(
        self, where: tuple[str, str], schema: Schema, name: str, build: Build, depth: int
    ) -> Iterator[Field]:
        smallest = self._smallest(schema)
        for key, inner in schema.get("properties", {}).items():

            def build_with(value: Any, key: str = key) -> Any:
                return build(smallest | {key: value})

            yield from self._walk(where, inner, f"{name}.{key}", build_with, depth + 1)
        if schema.get("additionalProperties", "properties" not in schema) is not False:
            yield Field(*where, name, schema.get("maxProperties"), build, self._fill_map(schema))

    def _fill_list(self, schema: Schema) -> Callable[[int], Any]:
        return lambda count: [
            _make_distinct(self._smallest(schema["items"]), number) for number in range(count)
        ]

    def _fill_map(self, schema: Schema) -> Callable[[int], Any]:
        inner = schema.get("additionalProperties")
        value = self._smallest(inner) if isinstance(inner, dict) else 0
        known = self._smallest(schema)

        def fill(count: int) -> Any:
            return known | {f"key{number}": value for number in range(count - len(known))}

        return fill

    def _smallest(self, schema: Schema) -> Any:
        """A small valid value."""
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        if choices := _choices(schema):
            return self._smallest(choices[0])
        match schema.get("type"):
            case "object":
                return self._smallest_object(schema)
            case "array":
                return [self._smallest(schema["items"])] * schema.get("minItems", 0)
            case "string":
                return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "x"
            case "integer" | "number":
                return max(schema.get("minimum", 1), 1)
            case "boolean":
                return True
            case _:
                return None

    def _smallest_object(self, schema: Schema) -> dict[str, Any]:
        known = schema.get("properties", {})
        # The type says which of several objects this is.
        names = {*schema.get("required", ()), *(("type",) if "type" in known else ())}
        return {
            name: _VALID.get(name) or self._smallest(known[name]) for name in known if name in names
        }

    def _resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            target: Any = self._document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            schema = target
        return schema


def _choices(schema: Schema) -> list[Schema]:
    return [choice for key in ("anyOf", "oneOf", "allOf") for choice in schema.get(key, ())]


def _is_object(schema: Schema) -> bool:
    return schema.get("type") == "object" or "properties" in schema


def _make_distinct(value: Any, number: int) -> Any:
    """Lists of names and labels usually have each only once."""
    if value == "x":
        return f"x{number}"
    if isinstance(value, dict):
        named = {key: f"x{number}" for key in ("label", "name", "tool_name") if key in value}
        return value | named
    return value
