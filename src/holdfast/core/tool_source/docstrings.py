"""Parsing docstrings: the description and that of each parameter (Google, NumPy, Sphinx)."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import docstring_parser

from holdfast.core.tool_source.module import Function, schema_error
from holdfast.core.tool_source.schema import MAX_SCHEMA_CHARS


@dataclass(frozen=True, slots=True)
class Docs:
    description: str
    parameters: Mapping[str, str]

    @classmethod
    def from_node(cls, node: Function | ast.ClassDef) -> "Docs":
        text = ast.get_docstring(node) or ""
        # A longer text would exceed the schema's limit anyway.
        if len(text) > MAX_SCHEMA_CHARS:
            raise schema_error(
                f"the docstring of '{node.name}' is longer than {MAX_SCHEMA_CHARS} characters"
            )
        try:
            parsed = docstring_parser.parse(text)
        except docstring_parser.ParseError as error:
            raise schema_error(f"the docstring of '{node.name}' cannot be read: {error}") from None
        parameters = {
            name.strip(): parameter.description
            for parameter in parsed.params
            if parameter.description
            for name in parameter.arg_name.split(",")  # NumPy documents `x, y : int` together
        }
        return cls(_description(parsed), parameters)


def _description(parsed: docstring_parser.Docstring) -> str:
    """Short, blank line, long, blank line, examples (wire-v1 §2.5)."""
    parts = [parsed.short_description, parsed.long_description]
    examples = [
        "\n".join(filter(None, (example.snippet, example.description)))
        for example in parsed.examples
    ]
    if any(examples):
        lines = "\n".join(examples).splitlines()
        parts.append("\n".join(["Examples:", *(f"    {line}" if line else "" for line in lines)]))
    return "\n\n".join(filter(None, parts))
