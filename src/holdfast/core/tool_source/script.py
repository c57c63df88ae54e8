"""Wrapping a script without a function into a source that the sandbox can run."""

import ast
from typing import Final

from holdfast.core.tool_source.function import MAX_SOURCE_CHARS
from holdfast.core.tool_source.module import schema_error
from holdfast.core.tool_source.parsing import parse

ENTRY_FUNCTION: Final = "value_of_the_last_line"
_VALUE_VARIABLE: Final = "_value_of_the_last_line"


def as_module(program: str, *, as_repr: bool = True) -> str:
    """The program with a function added that returns the last line's value (``as_repr``: its repr), or None if the last
    line is not an expression or its value is None. ToolSourceInvalid if it cannot be parsed."""
    if len(program) > MAX_SOURCE_CHARS:
        raise schema_error(f"the program is longer than {MAX_SOURCE_CHARS} characters")
    try:
        body = parse(program).body
    except SyntaxError as error:
        raise schema_error(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise schema_error("the program cannot be parsed") from None
    if not body or not isinstance(body[-1], ast.Expr):
        return f"{program}\n\n{_VALUE_VARIABLE} = None\n{_entry_function(as_repr=as_repr)}"
    before, last = _split_last_expression(program, body[-1])
    return f"{before}\n{_VALUE_VARIABLE} = (\n{last}\n)\n{_entry_function(as_repr=as_repr)}"


def _entry_function(*, as_repr: bool) -> str:
    if not as_repr:
        return f"def {ENTRY_FUNCTION}():\n    return {_VALUE_VARIABLE}\n"
    return f"def {ENTRY_FUNCTION}():\n    return None if {_VALUE_VARIABLE} is None else repr({_VALUE_VARIABLE})\n"


def _split_last_expression(program: str, last: ast.Expr) -> tuple[str, str]:
    """The text before the last expression, and the expression."""
    # AST column offsets count bytes.
    lines = program.encode().splitlines(keepends=True)
    at = sum(map(len, lines[: last.lineno - 1])) + last.col_offset
    end = sum(map(len, lines[: (last.end_lineno or last.lineno) - 1])) + (last.end_col_offset or 0)
    text = program.encode()
    return text[:at].decode(), text[at:end].decode()
