"""The functions, classes, aliases and imports of a parsed source. Only literals are evaluated."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.core.tool_source.schema import is_json_scalar
from holdfast.errors import ToolSourceInvalid

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class NotLiteral(Exception):
    """The expression is not a constant that JSON can hold."""


def schema_error(fault: str) -> ToolSourceInvalid:
    return ToolSourceInvalid(f"Failed to derive json schema: {fault}")


@dataclass(frozen=True, slots=True)
class Module:
    functions: tuple[Function, ...]
    classes: Mapping[str, ast.ClassDef]
    aliases: Mapping[str, ast.expr]
    imports: Mapping[str, str]

    @classmethod
    def from_tree(cls, tree: ast.Module) -> "Module":
        functions: list[Function] = []
        classes: dict[str, ast.ClassDef] = {}
        aliases: dict[str, ast.expr] = {}
        imports: dict[str, str] = {}
        for statement in tree.body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    functions.append(statement)
                case ast.ClassDef(name=name):
                    classes[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    aliases[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    aliases[name] = value
                case ast.ImportFrom(names=names):
                    imports |= {name.asname: name.name for name in names if name.asname}
        return cls(tuple(functions), classes, aliases, imports)

    def name_of(self, node: ast.expr) -> str:
        """`List` for `List`, `typing.List`, `t.List` and an import of it under another name."""
        match node:
            case ast.Name(id=name):
                return self.imports.get(name, name)
            case ast.Attribute(attr=name):
                return name
            case ast.Subscript(value=value) | ast.Call(func=value):
                # One level only: `f()()` and `a[0][1]` are not types.
                return "" if isinstance(value, ast.Subscript | ast.Call) else self.name_of(value)
        return ""

    def lineage(self, name: str) -> list[ast.ClassDef]:
        """The class and its bases that are defined in the source, bases first."""
        found: dict[str, ast.ClassDef] = {}
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in self.classes and current not in found:
                found[current] = self.classes[current]
                waiting += [self.name_of(base) for base in self.classes[current].bases]
        return list(reversed(found.values()))


def literal(node: ast.expr) -> object:
    """The JSON value of a constant expression; tuples and sets become lists."""
    try:
        return _as_json(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise NotLiteral from error


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def string_arguments(call: ast.Call) -> Iterator[tuple[str, str]]:
    """The keyword arguments of a call that are plain strings."""
    for name, value in keywords(call).items():
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield name, value.value


def _as_json(value: object) -> object:
    match value:
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise NotLiteral
            return {key: _as_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_as_json(inner) for inner in value]
        case set():
            # Sorted, so that the same source always gives the same schema.
            return sorted((_as_json(inner) for inner in value), key=repr)
    if not is_json_scalar(value):
        raise NotLiteral
    return value
