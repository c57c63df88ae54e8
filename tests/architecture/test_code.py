"""The rules of CONTRIBUTING.md for the source that no linter can check. Exceptions are listed exactly.

If one of these tests fails because a list is longer than the code needs, shorten the list.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.modules import (
    LONGEST_FUNCTION,
    LONGEST_MODULE,
    ROOT,
    SOURCE,
    TESTS,
    Function,
    code_lines,
    functions,
    imported_modules,
    read_trees,
)

# How many handlers of each module catch everything: the boundaries of a run and of a side task; the
# tool's own process, which reports whatever a tool raises; a document's own process, likewise for
# parsers; the answer about a run that is stored; an MCP call whose client waits for an answer; a request to an MCP
# server, which must not end those of others; and libraries whose errors
# have no class of their own.
BROAD_EXCEPTS = {
    "adapters/documents/extraction.py": 1,
    "adapters/embedder/local/sentence_encoder.py": 1,
    "adapters/lease/heartbeat.py": 1,
    "adapters/mcp/connection.py": 2,
    "adapters/mcp/held_session.py": 1,
    "adapters/mcp/http_transport.py": 1,
    "adapters/sandbox/child.py": 2,
    "adapters/toolbox/code_with_tools.py": 1,
    "assembly/warm_up.py": 1,
    "engine/approval_expiry.py": 1,
    "engine/callbacks.py": 1,
    "engine/effects.py": 1,
    "engine/embedding.py": 3,
    "engine/ingestion.py": 1,
    "engine/queue_metrics.py": 1,
    "engine/worker.py": 2,
    "http/letta_v1/sends.py": 1,
    "http/mcp/exchange.py": 1,
    "usecases/mcp_configured.py": 1,
    "usecases/passages.py": 1,
}
# It raises the cancellation again, once its work is done.
DEFERRED_CANCELLATIONS = {"adapters/sandbox/environments.py": 1, "engine/store_writes.py": 1}
# What is imported only when it is needed, because a start or a --help would pay for it. ``*``: by a
# computed name.
LAZY_IMPORTS = {
    "adapters/bell/doctor_checks.py": {"holdfast.adapters.bell.round_trip"},
    "adapters/bell/factory.py": {"holdfast.adapters.bell.postgres"},
    "adapters/documents/extraction.py": {"*"},
    "adapters/embedder/bridge.py": {"*"},
    "adapters/embedder/local/models.py": {"holdfast.adapters.embedder.local.sentence_encoder"},
    "adapters/embedder/router.py": {"holdfast.adapters.embedder.bridge"},
    "adapters/event_log/factory.py": {"holdfast.adapters.event_log.redis"},
    "adapters/lease/factory.py": {
        "holdfast.adapters.lease.heartbeat",
        "holdfast.adapters.store.heartbeat_connection",
    },
    "adapters/mcp/authorization.py": {"holdfast.adapters.mcp.oauth"},
    "adapters/mcp/client.py": {"holdfast.adapters.mcp.opening"},
    "adapters/mcp/stdio.py": {"holdfast.adapters.mcp.line_streams"},
    "adapters/models/catalogue.py": {"holdfast.adapters.models.pydantic_ai.unsupported_settings"},
    "adapters/models/discovery/discovery.py": {"holdfast.adapters.models.discovery"},
    "adapters/models/providers/profiles.py": {"*"},
    "adapters/models/pydantic_ai/bridge.py": {"*"},
    "adapters/models/router.py": {"holdfast.adapters.models.pydantic_ai.bridge"},
    "adapters/outgoing/guarded.py": {"holdfast.adapters.outgoing.connections"},
    "adapters/prices/genai.py": {
        "genai_prices",
        "genai_prices.data_snapshot",
        "genai_prices.types",
    },
    "adapters/store/cipher.py": {"cryptography.fernet"},
    "adapters/store/factory.py": {"holdfast.adapters.store.postgres"},
    "adapters/store/schema_upgrade.py": {"alembic", "alembic.config"},
    "adapters/store/vector_search.py": {"holdfast.adapters.store.vector_math"},
    "adapters/telemetry/factory.py": {"holdfast.adapters.telemetry.otel"},
    "cli/main.py": {"holdfast.cli", "holdfast.cli.api", "holdfast.cli.server"},
    "http/mcp/routes.py": {"holdfast.http.mcp.exchange"},
}
# A migration is never edited.
LONG_MODULES = {"adapters/store/migrations/versions/v0001_first_tables.py"}
LONG_FUNCTIONS = {"adapters/store/migrations/versions/v0001_first_tables.py _steps"}
VAGUE_NAME = re.compile(
    r"(manager|helper|utils?|common|service)$|(^|_)(manager|helper|utils?|common|base)(_|$)|_?v\d+$",
    re.IGNORECASE,
)
# Participles, adjectives and prepositions that are not names of functions; nor are one-word names in -ed.
NOT_A_VERB = {
    "at", "brought", "found", "given", "heard", "held", "including", "kept", "left", "lent", "made",
    "meant", "named", "of", "said", "seen", "sent", "shown", "spoken", "struck", "taken", "told",
    "written",
}  # fmt: skip
# A time ends in _at; these are V1's names, or the noun says it already.
VERBS_IN_ED = {"embed", "reembed"}
TIMES_NAMED_OTHERWISE = {
    "at",
    "deadline",
    "end_date",
    "last_run_completion",
    "last_synced",
    "now",
    "since",
    "start_date",
    "until",
}
SILENCED = re.compile(r"[#]\s*(noqa|type:\s*ignore)\b")
REASONED = re.compile(
    r"[#] noqa: [A-Z]+\d+(, [A-Z]+\d+)* - \S|[#] type: ignore\[[a-z, -]+\]\s+[#] \S"
)


@pytest.mark.parametrize("folder", [SOURCE, TESTS, ROOT / "bench"], ids=lambda path: path.name)
def test_every_module_has_a_docstring(folder: Path) -> None:
    trees = read_trees(folder)
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_only_the_listed_boundaries_catch_everything() -> None:
    broad = Counter(
        name
        for name, tree in read_trees().items()
        for node in ast.walk(tree)
        if _swallows(node, {"Exception", "BaseException"})
    )
    assert broad == BROAD_EXCEPTS


def test_a_cancellation_is_never_swallowed() -> None:
    swallowed = Counter(
        name
        for name, tree in read_trees().items()
        for node in ast.walk(tree)
        if _swallows(node, {"CancelledError"})
    )
    assert swallowed == DEFERRED_CANCELLATIONS


def _swallows(node: ast.AST, errors: set[str]) -> bool:
    """Whether this catches one of the errors and does not raise it again."""
    if isinstance(node, ast.ExceptHandler):
        # Without a type it catches everything.
        caught = _names(node.type) if node.type else {"BaseException"}
        last = node.body[-1]
        return bool(caught & errors) and not (isinstance(last, ast.Raise) and last.exc is None)
    if isinstance(node, ast.Call) and "suppress" in _names(node.func):
        return any(_names(argument) & errors for argument in node.args)
    return False


def _names(node: ast.AST) -> set[str]:
    """The last parts of the names in an expression."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def test_imports_stand_at_the_top_except_for_the_listed_ones() -> None:
    lazy: dict[str, set[str]] = {}
    for name, tree in read_trees().items():
        late = {module for function in functions(tree) for module in imported_modules(function)}
        late |= set(_computed_imports(tree))
        if late:
            lazy[name] = late
    assert lazy == LAZY_IMPORTS


def _computed_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and "import_module" in _names(node.func):
            name = node.args[0]
            yield str(name.value) if isinstance(name, ast.Constant) else "*"


def test_only_assembly_imports_adapters() -> None:
    """Adapters import each other; above them, one place says which of them are used. The settings of providers are
    read from their table."""
    imports = {
        (name.split("/")[0].removesuffix(".py"), module)
        for name, tree in read_trees().items()
        for module in imported_modules(tree)
        if module.startswith("holdfast.adapters")
    }
    others = {(name, module) for name, module in imports if name not in ("adapters", "assembly")}
    assert others == {
        ("config", "holdfast.adapters.models.providers.row"),
        ("config", "holdfast.adapters.models.providers.table"),
    }


@pytest.mark.parametrize("banned", ["pickle", "marshal", "shelve"])
def test_nothing_is_read_that_could_run_code(banned: str) -> None:
    assert [name for name, tree in read_trees().items() if banned in imported_modules(tree)] == []


def test_only_the_tools_own_process_runs_source() -> None:
    running = {
        name
        for name, tree in read_trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in {"eval", "exec"}
    }
    assert running == {"adapters/sandbox/child.py"}


def test_functions_are_short() -> None:
    long = {
        f"{name} {function.name}"
        for name, tree in read_trees().items()
        for lines in [code_lines(tree)]
        for function in functions(tree)
        if len(lines & set(_lines_of(function))) > LONGEST_FUNCTION
    }
    assert long == LONG_FUNCTIONS


def _lines_of(function: Function) -> range:
    first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
    return range(first, (function.end_lineno or first) + 1)


def test_modules_are_short() -> None:
    long = {n for n, tree in read_trees().items() if len(code_lines(tree)) > LONGEST_MODULE}
    assert long == LONG_MODULES


def test_modules_and_classes_are_named_by_what_they_are() -> None:
    names = {Path(name).stem for name in read_trees()}
    names |= {
        node.name
        for tree in read_trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert {name for name in names if VAGUE_NAME.search(name)} == set()


def test_functions_are_verbs_or_nouns() -> None:
    """Properties may be adjectives: ``moment.happened``."""
    participles = [
        f"{name}:{function.lineno} {function.name}"
        for name, tree in read_trees().items()
        for function in functions(tree)
        if _is_participle(function.name.strip("_"))
        if not any("property" in ast.unparse(item) for item in function.decorator_list)
    ]
    assert participles == []


def _is_participle(name: str) -> bool:
    return name in NOT_A_VERB or (
        "_" not in name and name.endswith("ed") and name not in VERBS_IN_ED
    )


def test_times_end_in_at() -> None:
    names = {
        field.target.id
        for tree in read_trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if "datetime" in ast.unparse(field.annotation)
    }
    assert {name for name in names if not name.endswith("_at")} == TIMES_NAMED_OTHERWISE


@pytest.mark.parametrize("folder", [SOURCE, TESTS, ROOT / "bench"], ids=lambda path: path.name)
def test_who_silences_a_linter_names_the_rule_and_the_reason(folder: Path) -> None:
    silent = [
        f"{path.relative_to(folder)}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if SILENCED.search(line) and not REASONED.search(line)
    ]
    assert silent == []
