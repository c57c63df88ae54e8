"""The modules of the repository as syntax trees, for the tests that hold the rules of CONTRIBUTING.md."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from holdfast.core.tool_source.parsing import parse

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
TESTS = ROOT / "tests"

# In lines of code: without blank lines, comments and docstrings.
LONGEST_FUNCTION = 40
LONGEST_MODULE = 400

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def read_trees(folder: Path = SOURCE) -> dict[str, ast.Module]:
    """Each module below this folder by its path."""
    return {
        path.relative_to(folder).as_posix(): parse(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported, at the top or in a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def code_lines(tree: ast.Module) -> set[int]:
    """The lines on which code stands: neither blank lines, nor comments, nor docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias):
            lines |= {node.lineno, node.end_lineno or node.lineno}
        if isinstance(node, ast.Constant | ast.JoinedStr):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines - _docstring_lines(tree)


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            text = node.body[0]
            lines |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines
