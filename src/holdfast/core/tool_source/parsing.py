"""Parsing Python source, whatever else the interpreter does meanwhile."""

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
    """The tree of `source`.

    CPython 3.11 cannot parse within a parse: it ends in "AST constructor recursion depth mismatch". A garbage
    collection in mid-parse does just that when a finaliser logs a traceback, whose markers are found by parsing
    the lines shown. So nothing is collected until the tree stands.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, mode=mode)
    finally:
        if collecting:
            gc.enable()
