"""Parsing Python source safely with regard to garbage collection."""

import ast
import gc
from typing import Literal, overload


@overload
def parse(source: str) -> ast.Module: ...
@overload
def parse(source: str, mode: Literal["exec"]) -> ast.Module: ...
@overload
def parse(source: str, mode: Literal["eval"]) -> ast.Expression: ...


def parse(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """Parse `source` with garbage collection switched off.

    CPython 3.11 cannot parse while it is parsing: it raises "AST constructor recursion depth mismatch". That happens
    when a garbage collection during a parse runs a finalizer that logs a traceback, because formatting a traceback
    parses its source lines.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, mode=mode)
    finally:
        if collecting:
            gc.enable()
