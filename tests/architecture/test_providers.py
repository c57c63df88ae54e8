"""Providers are rows: only the table and what speaks a provider's own API name one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.tool_source.parsing import parse

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"

# Where a provider may be named, and why.
MAY_NAME = {
    "adapters/embedder/wires/": "each module speaks one provider's API with its SDK",
    "adapters/models/providers/": "the table",
    "adapters/models/pydantic_ai/wires/": "each module speaks one provider's API with its SDK",
    "adapters/models/discovery/list_apis.py": "each function reads one API that lists models",
    "http/letta_v1/": "V1's wire names provider types in its model settings",
    "testing/": "the scripted provider plays the providers",
    "logs.py": "the SDKs' loggers have their names",
}

# "together" is also an everyday word: only as a whole string it is a name.
WORDS = {word for name in PROVIDERS for word in re.split(r"[-_]", name)} - {
    "ai",
    "proxy",
    "together",
}
VARIABLES = {
    variable
    for row in PROVIDERS.values()
    for item in row.variables
    for variable in item.environment
}
HOSTS = {
    address.partition("://")[2].partition("/")[0]
    for row in PROVIDERS.values()
    for address in (row.address, *row.other_addresses)
    if address
}


def test_no_other_module_names_a_provider() -> None:
    named = {
        f"{module}:{line} {what}"
        for module, tree in modules()
        if not module.startswith(tuple(MAY_NAME))
        for line, what in (*find_in_strings(tree), *find_in_definitions(tree))
    }
    assert named == set()


def test_every_exception_is_needed() -> None:
    used = {
        place
        for module, tree in modules()
        for place in MAY_NAME
        if module.startswith(place)
        and (any(find_in_strings(tree)) or any(find_in_definitions(tree)))
    }
    assert used == set(MAY_NAME)


def provider_table() -> str:
    """The table of docs/configuration.md. If it differs, paste this text into the page."""
    rows = ["| handle | set | extra |", "|---|---|---|"]
    for row in PROVIDERS.values():
        setup = re.sub(r"\b[A-Z]+_[A-Z_]+\b", r"`\g<0>`", row.setup_text)
        rows.append(f"| `{row.name}/…` | {setup} | {f'`{row.extra}`' if row.extra else ''} |")
    return "\n".join(rows)


def test_the_table_of_providers_in_the_docs_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert provider_table() in page


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), parse(path.read_text(encoding="utf-8"))


def find_in_strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """A provider's name as a whole string or the beginning of a handle, one of its variables, or its host."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value
        if id(node) in prose:
            continue
        found = (
            text.partition("/")[0] in PROVIDERS
            or VARIABLES & set(re.findall(r"\w+", text))
            or any(host in text for host in HOSTS)
        )
        if found:
            yield node.lineno, text


def find_in_definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """A function, class, parameter or variable with a provider's name in its own."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = node.name
            case ast.arg():
                name = node.arg
            case ast.Name(ctx=ast.Store()):
                name = node.id
            case _:
                continue
        if any(word in name.lower() for word in WORDS):
            yield node.lineno, name
