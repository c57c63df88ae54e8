"""Deriving a tool's schema from its function, the last one at the top level of the source (wire-v1 §2.5)."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.core.tool_source.annotations import AnnotationReader, Location, without_null
from holdfast.core.tool_source.classes import default_keyword
from holdfast.core.tool_source.docstrings import Docs
from holdfast.core.tool_source.module import Function, Module, schema_error
from holdfast.core.tool_source.parsing import parse
from holdfast.core.tool_source.schema import (
    Schema,
    ToolSchema,
    bounds_fault,
    check_json_schema,
    check_parameters,
    name_fault,
)
from holdfast.errors import ToolSourceInvalid

MAX_SOURCE_CHARS: Final = 100_000
"""Python's parser stops all other work of the process, for half a second at this length; real tools are far shorter."""

# How many of the source's functions an error lists.
_MAX_NAMES_SHOWN: Final = 10

_INJECTED_PARAMETERS: Final = frozenset({"self", "agent_state"})


@dataclass(frozen=True, slots=True)
class _Parameter:
    node: ast.arg
    default: ast.expr | None

    @property
    def label(self) -> str:
        return f"parameter '{self.node.arg}' (line {self.node.lineno})"


def derive_schema(source: str) -> ToolSchema:
    """Derive the schema of the tool in this source. Raises ToolSourceInvalid with location and reason."""
    return _derive(_parse_module(source))


def derive_schema_of(source: str, name: str) -> ToolSchema | None:
    """Derive the schema of the function with this name; None if the source has none at its top level."""
    module = _parse_module(source)
    functions = [function for function in module.functions if function.name == name]
    return _derive(replace(module, functions=tuple(functions))) if functions else None


def has_function(source: str, name: str) -> bool:
    return any(function.name == name for function in _parse_module(source).functions)


def _derive(module: Module) -> ToolSchema:
    try:
        function = _find_tool_function(module)
        docs = _read_docs(function)
        schema = ToolSchema(
            function.name, docs.description, _derive_parameters(module, function, docs)
        )
    except RecursionError:
        raise schema_error("the source is nested too deeply") from None
    if (fault := bounds_fault(schema.as_json_schema())) is not None:
        raise schema_error(fault)
    return schema


def with_schema(source: str, json_schema: object) -> ToolSchema:
    """Check the schema that the caller gives. The source must have the function that it names."""
    schema = check_json_schema(json_schema)
    functions = _parse_module(source).functions
    if all(function.name != schema.name for function in functions):
        known = ", ".join(function.name for function in functions[-_MAX_NAMES_SHOWN:]) or "none"
        raise ToolSourceInvalid(
            f"The json_schema's name '{schema.name}' is no function at the source's top level (there: {known})."
        )
    return schema


def with_parameters(source: str, args_json_schema: object, name: str = "") -> ToolSchema:
    """The schema with the parameters that the caller gives; name and description come from the source: from the function
    of this name if there is one."""
    parameters = check_parameters(args_json_schema)
    module = _parse_module(source)
    named = tuple(function for function in module.functions if function.name == name)
    function = _find_tool_function(replace(module, functions=named or module.functions))
    schema = ToolSchema(function.name, _read_docs(function).description, parameters)
    if (fault := bounds_fault(schema.as_json_schema())) is not None:
        raise schema_error(fault)
    return schema


def _parse_module(source: str) -> Module:
    if len(source) > MAX_SOURCE_CHARS:
        raise schema_error(f"the source is longer than {MAX_SOURCE_CHARS} characters")
    if "\0" in source:
        raise schema_error("the source has a NUL character")
    try:
        return Module.from_tree(parse(source))
    except SyntaxError as error:
        shown = f": {error.text.strip()[:100]!r}" if error.text else ""
        raise schema_error(f"line {error.lineno}: {error.msg}{shown}") from None
    except UnicodeEncodeError:
        raise schema_error("the source has a lone surrogate") from None
    except (RecursionError, MemoryError):
        # The parser raises these at its own nesting limit; memory is not exhausted.
        raise schema_error("the source is nested too deeply") from None


def _find_tool_function(module: Module) -> Function:
    if not module.functions:
        raise schema_error("the source defines no function at its top level")
    function = module.functions[-1]
    if (fault := name_fault(function.name)) is not None:
        raise schema_error(fault)
    return function


def _read_docs(function: Function) -> Docs:
    docs = Docs.from_node(function)
    if not docs.description:
        raise schema_error(
            f"function '{function.name}' (line {function.lineno}) has no docstring that describes it"
        )
    return docs


def _derive_parameters(module: Module, function: Function, docs: Docs) -> Schema:
    annotations = AnnotationReader(module)
    properties: Schema = {}
    required: list[str] = []
    for parameter in _list_parameters(function):
        schema, nullable = _derive_property(annotations, parameter)
        name = parameter.node.arg
        description = docs.parameters.get(name) or schema.get("description")
        if not description:
            raise schema_error(
                f"{parameter.label} has no description: each parameter needs a type annotation and an `Args:` description"
            )
        properties[name] = {
            **schema,
            "description": description,
            **default_keyword(parameter.default),
        }
        if parameter.default is None and not nullable:
            required.append(name)
    definitions: dict[str, Any] = (
        {"$defs": annotations.definitions} if annotations.definitions else {}
    )
    return {"type": "object", "properties": properties, "required": required, **definitions}


def _derive_property(annotations: AnnotationReader, parameter: _Parameter) -> tuple[Schema, bool]:
    if parameter.node.annotation is None:
        raise schema_error(
            f"{parameter.label} has no type: each parameter needs a type annotation and an `Args:` description"
        )
    schema = annotations.schema_of(parameter.node.annotation, Location(parameter.label))
    return without_null(schema)


def _list_parameters(function: Function) -> Iterator[_Parameter]:
    given = function.args
    for stars, node in (("*", given.vararg), ("**", given.kwarg)):
        if node is not None:
            raise schema_error(
                f"parameter '{stars}{node.arg}' (line {node.lineno}) takes any number of values; a tool names its parameters"
            )
    positional = [*given.posonlyargs, *given.args]
    # The list has only the defaults that exist; they belong to the last positional parameters.
    undefaulted = len(positional) - len(given.defaults)
    defaults = [*([None] * undefaulted), *given.defaults, *given.kw_defaults]
    for node, default in zip([*positional, *given.kwonlyargs], defaults, strict=True):
        if node.arg not in _INJECTED_PARAMETERS:
            yield _Parameter(node, default)
