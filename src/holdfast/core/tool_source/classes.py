"""Classes defined in a tool's source: the fields of models, dataclasses and TypedDicts, and Enum values."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.tool_source.module import (
    Module,
    NotLiteral,
    keywords,
    literal,
    string_arguments,
)

_ENUMS: Final = frozenset({"Enum", "IntEnum", "StrEnum"})
_RECORDS: Final = frozenset({"BaseModel", "TypedDict"})
_CONSTRAINTS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `key` is its name in JSON; `extras` are keywords added to the schema of its type."""

    name: str
    key: str
    annotation: ast.expr
    required: bool
    extras: dict[str, Any]
    label: str


def is_enum(module: Module, name: str) -> bool:
    return not _ENUMS.isdisjoint(_base_names(module, name))


def is_record(module: Module, name: str) -> bool:
    return not _RECORDS.isdisjoint(_base_names(module, name)) or any(
        module.name_of(decorator) == "dataclass"
        for cls in module.lineage(name)
        for decorator in cls.decorator_list
    )


def enum_values(module: Module, name: str) -> list[object]:
    """The members' values. `auto()` counts up, or is the lower-case name in a StrEnum."""
    values: list[object] = []
    for statement in module.classes[name].body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=member)], value=value) if not member.startswith(
                "_"
            ):
                if module.name_of(value) == "auto":
                    values.append(_auto_value(module, name, member, values))
                else:
                    values.append(literal(value))
    return values


def fields_of(module: Module, name: str) -> list[Field]:
    typed_dict = "TypedDict" in _base_names(module, name)
    found: dict[str, Field] = {}
    for cls in module.lineage(name):
        for statement in cls.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=field)) if _is_field(module, statement):
                    found[field] = _field(module, cls, field, statement, typed_dict=typed_dict)
    return list(found.values())


def field_keywords(call: ast.Call) -> dict[str, Any]:
    """The description and the bounds of a pydantic `Field(...)`."""
    found: dict[str, Any] = {
        name: text for name, text in string_arguments(call) if name == "description"
    }
    for name, value in keywords(call).items():
        if name in _CONSTRAINTS:
            found |= _constant_keyword(_CONSTRAINTS[name], value)
    return found


def default_keyword(default: ast.expr | None) -> dict[str, Any]:
    """`{"default": …}` if the default is a constant. A default of None only makes the value optional."""
    if default is None or (isinstance(default, ast.Constant) and default.value is None):
        return {}
    return _constant_keyword("default", default)


def _field(
    module: Module, cls: ast.ClassDef, name: str, statement: ast.AnnAssign, *, typed_dict: bool
) -> Field:
    value, key, extras = statement.value, name, dict[str, Any]()
    if isinstance(value, ast.Call) and module.name_of(value) in {"Field", "field"}:
        key = dict(string_arguments(value)).get("alias", name)
        extras = field_keywords(value)
        value = _default_of(value)
    optional = value is not None
    if typed_dict:
        optional = _may_be_left_out(module, cls, statement.annotation)
    return Field(
        name=name,
        key=key,
        annotation=statement.annotation,
        required=not optional,
        extras=default_keyword(value) | extras,
        label=f"field '{name}' of '{cls.name}' (line {statement.lineno})",
    )


def _default_of(call: ast.Call) -> ast.expr | None:
    """The default, or the factory that makes one; `Field(...)` has none."""
    given = keywords(call)
    default = call.args[0] if call.args else given.get("default", given.get("default_factory"))
    if isinstance(default, ast.Constant) and default.value is ...:
        return None
    return default


def _may_be_left_out(module: Module, cls: ast.ClassDef, annotation: ast.expr) -> bool:
    marker = module.name_of(annotation) if isinstance(annotation, ast.Subscript) else ""
    if marker in {"Required", "NotRequired"}:
        return marker == "NotRequired"
    return any(
        keyword.arg == "total"
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is False
        for keyword in cls.keywords
    )


def _is_field(module: Module, statement: ast.AnnAssign) -> bool:
    name = statement.target.id if isinstance(statement.target, ast.Name) else ""
    return not name.startswith("_") and module.name_of(statement.annotation) != "ClassVar"


def _base_names(module: Module, name: str) -> Iterator[str]:
    for cls in module.lineage(name):
        for base in cls.bases:
            yield module.name_of(base)


def _auto_value(module: Module, name: str, member: str, before: list[object]) -> object:
    if "StrEnum" in _base_names(module, name):
        return member.lower()
    last = before[-1] if before else 0
    if not isinstance(last, int):
        raise NotLiteral
    return last + 1


def _constant_keyword(key: str, value: ast.expr) -> dict[str, Any]:
    try:
        return {key: literal(value)}
    except NotLiteral:
        return {}
