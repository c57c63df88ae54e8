"""Converting type annotations to JSON schema (wire-v1 §2.5).

With aliases and classes a short source can expand to a huge schema, so each schema value is counted against
MAX_SCHEMA_NODES, and results that do not depend on the location are cached.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from holdfast.core.tool_source.classes import (
    Field,
    enum_values,
    field_keywords,
    fields_of,
    is_enum,
    is_record,
)
from holdfast.core.tool_source.docstrings import Docs
from holdfast.core.tool_source.module import Module, NotLiteral, literal, schema_error
from holdfast.core.tool_source.parsing import parse
from holdfast.core.tool_source.schema import MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, Schema
from holdfast.errors import ToolSourceInvalid

NULL: Final[Schema] = {"type": "null"}

_SCALARS: Final[dict[str, Schema]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": NULL,
    "Any": {},
    "object": {},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "UUID": {"type": "string", "format": "uuid"},
}
_ARRAYS: Final = frozenset(
    [
        "list",
        "List",
        "set",
        "Set",
        "frozenset",
        "FrozenSet",
        "AbstractSet",
        "Sequence",
        "MutableSequence",
        "Iterable",
        "Collection",
    ]
)
_OBJECTS: Final = frozenset(["dict", "Dict", "Mapping", "MutableMapping"])
_TUPLES: Final = frozenset({"tuple", "Tuple"})
_JSON_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Location:
    """The location of an annotation: its label for error messages, and its depth for the limit."""

    label: str
    depth: int = 0

    def descend(self) -> "Location":
        return replace(self, depth=self.depth + 1)


class AnnotationReader:
    """Reads the annotations of one module. `definitions` collects the schemas of recursive classes."""

    def __init__(self, module: Module) -> None:
        self.definitions: dict[str, Schema] = {}
        self._module = module
        self._node_count = 0
        self._open_classes: list[str] = []
        self._recursive: set[str] = set()
        self._class_docs = cache(lambda name: Docs.from_node(module.classes[name]))
        self._class_fields = cache(lambda name: fields_of(module, name))
        self._enum_values = cache(lambda name: enum_values(module, name))
        self._parse_expression = cache(_parse_expression)
        self._generics: dict[str, Callable[[Sequence[ast.expr], Location], Schema]] = {
            "Annotated": self._annotated_schema,
            "Literal": self._literal,
            "Optional": lambda arguments, place: self._union(
                [*arguments, ast.Constant(None)], place
            ),
            "Union": self._union,
            **dict.fromkeys(("Required", "NotRequired", "ReadOnly", "Final"), self._first_argument),
            **dict.fromkeys(_ARRAYS, self._array),
            **dict.fromkeys(_TUPLES, self._tuple),
            **dict.fromkeys(_OBJECTS, self._object),
        }

    def schema_of(self, annotation: ast.expr, place: Location) -> Schema:
        self._count_nodes(1, place)
        if place.depth > MAX_SCHEMA_DEPTH:
            raise schema_error(
                f"the type of {place.label} is nested deeper than {MAX_SCHEMA_DEPTH} levels"
            )
        match annotation:
            case ast.Constant(value=None):
                return NULL
            case ast.Constant(value=str() as text):
                return self.schema_of(self._parse_annotation(text, place), place.descend())
            case ast.BinOp(op=ast.BitOr()):
                return self._union(_operands(annotation), place)
            case ast.Subscript(slice=ast.Tuple(elts=arguments)):
                return self._generic(annotation, arguments, place)
            case ast.Subscript(slice=argument):
                return self._generic(annotation, [argument], place)
            case ast.Name() | ast.Attribute():
                return self._named_type(annotation, place)
        raise self._unknown_type_error(annotation, place)

    def _count_nodes(self, nodes: int, place: Location) -> None:
        self._node_count += nodes
        if self._node_count > MAX_SCHEMA_NODES:
            raise schema_error(
                f"with {place.label} the schema has more than {MAX_SCHEMA_NODES} values"
            )

    def _named_type(self, annotation: ast.Name | ast.Attribute, place: Location) -> Schema:
        name = self._module.name_of(annotation)
        if name in self._module.classes:
            return self._class(name, place)
        if isinstance(annotation, ast.Name) and name in self._module.aliases:
            return self.schema_of(self._module.aliases[name], place.descend())
        if name in _SCALARS:
            return dict(_SCALARS[name])
        if name in _ARRAYS or name in _TUPLES:
            return {"type": "array", "items": {}}
        if name in _OBJECTS:
            return {"type": "object"}
        raise self._unknown_type_error(annotation, place)

    def _generic(
        self, annotation: ast.Subscript, arguments: Sequence[ast.expr], place: Location
    ) -> Schema:
        read = self._generics.get(self._module.name_of(annotation))
        if read is None or not arguments:
            raise self._unknown_type_error(annotation, place)
        self._count_nodes(len(arguments), place)
        return read(arguments, place)

    def _first_argument(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        return self.schema_of(arguments[0], place.descend())

    def _array(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        return {"type": "array", "items": self._first_argument(arguments, place)}

    def _tuple(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        match arguments:
            case [item, ast.Constant(value=value)] if value is ...:
                return self._array([item], place)
        return {
            "type": "array",
            "prefixItems": [self.schema_of(item, place.descend()) for item in arguments],
        }

    def _object(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        # Keys of types other than str also become strings in JSON.
        return {
            "type": "object",
            "additionalProperties": self.schema_of(arguments[-1], place.descend()),
        }

    def _literal(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        try:
            return _enum([literal(argument) for argument in arguments])
        except NotLiteral:
            raise schema_error(
                f"the Literal of {place.label} has a value that is not a constant"
            ) from None

    def _union(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        choices: list[Schema] = []
        for argument in arguments:
            schema = self.schema_of(argument, place.descend())
            flat = schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
            choices += [choice for choice in flat if choice not in choices]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}

    def _annotated_schema(self, arguments: Sequence[ast.expr], place: Location) -> Schema:
        schema = self._first_argument(arguments, place)
        for extra in arguments[1:]:
            match extra:
                case ast.Constant(value=str() as text):
                    schema = {"description": text, **schema}
                case ast.Call(args=[ast.Constant(value=str() as text)]) if (
                    self._module.name_of(extra) == "Doc"
                ):
                    schema = {**schema, "description": text}
                case ast.Call() if self._module.name_of(extra) == "Field":
                    schema = {**schema, **field_keywords(extra)}
        return schema

    def _class(self, name: str, place: Location) -> Schema:
        reference = {"$ref": f"#/$defs/{name}"}
        if name in self.definitions:
            return reference
        if name in self._open_classes:
            self._recursive.add(name)
            return reference
        if is_enum(self._module, name):
            return self._enum_class(name, place)
        if not is_record(self._module, name):
            raise schema_error(
                f"{place.label} has the type '{name}', which is no BaseModel, dataclass, TypedDict or Enum"
            )
        self._open_classes.append(name)
        schema = self._record(name, place)
        self._open_classes.pop()
        if name not in self._recursive:
            return schema
        self.definitions[name] = schema
        return reference

    def _enum_class(self, name: str, place: Location) -> Schema:
        try:
            values = self._enum_values(name)
        except NotLiteral:
            raise schema_error(f"the Enum '{name}' has a value that is not a constant") from None
        self._count_nodes(len(values), place)
        return _enum(values)

    def _record(self, name: str, place: Location) -> Schema:
        docs = self._class_docs(name)
        properties: Schema = {}
        required: list[str] = []
        for field in self._class_fields(name):
            properties[field.key] = self._field(
                field, docs, replace(place, label=field.label).descend()
            )
            if field.required:
                required.append(field.key)
        described = {"description": docs.description} if docs.description else {}
        return {"type": "object", **described, "properties": properties, "required": required}

    def _field(self, field: Field, docs: Docs, place: Location) -> Schema:
        schema = self.schema_of(field.annotation, place)
        if not field.required:
            schema, _ = without_null(schema)
        if (description := docs.parameters.get(field.name)) is not None:
            schema = {"description": description, **schema}
        return {**schema, **field.extras}

    def _parse_annotation(self, text: str, place: Location) -> ast.expr:
        try:
            return self._parse_expression(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise schema_error(
                f"{place.label} has the annotation {text[:100]!r}, which is not a type"
            ) from None

    def _unknown_type_error(self, annotation: ast.expr, place: Location) -> ToolSourceInvalid:
        shown = ast.unparse(annotation)[:100]
        return schema_error(f"{place.label} has the type '{shown}', which JSON schema cannot say")


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """The schema without its `None` choice, and whether it had one: `Optional[T]` becomes `T`."""
    choices = schema.get("anyOf", [])
    if NULL not in choices:
        return schema, False
    others = [choice for choice in choices if choice != NULL]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return ({**others[0], **rest} if len(others) == 1 else {"anyOf": others, **rest}), True


def _enum(values: Sequence[object]) -> Schema:
    types = {_JSON_TYPES.get(type(value), "") for value in values}
    typed = {"type": types.pop()} if len(types) == 1 and "" not in types else {}
    return {**typed, "enum": list(values)}


def _operands(annotation: ast.expr) -> list[ast.expr]:
    """The operands of `a | b | c`. A loop, not recursion, because the chain may be as long as the source."""
    found: list[ast.expr] = []
    while isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        found.append(annotation.right)
        annotation = annotation.left
    return [annotation, *reversed(found)]


def _parse_expression(text: str) -> ast.expr:
    return parse(text.strip(), mode="eval").body
