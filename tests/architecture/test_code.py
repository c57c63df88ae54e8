"""What a linter cannot say about the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.tool_source.parsing import parse

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
MODULES = sorted(SOURCE.rglob("*.py"))
# The last resort of a run, of a side task and of HTTP; and the tool's own process, whose job it is to
# report whatever a tool raises.
BOUNDARIES = {
    "engine/callbacks.py",
    "engine/effects.py",
    "engine/timekeeper.py",
    "engine/worker.py",
    "http/error_status.py",
    "adapters/sandbox/child.py",
}
# Where a start or a --help would pay for what it may never need.
LAZY_IMPORTS = {
    "adapters/event_log/opening.py",
    "adapters/models/router.py",
    "adapters/models/bridge.py",
    "adapters/models/catalogue.py",
    "adapters/models/inquiry.py",
    "adapters/outgoing/guarded.py",
    "adapters/prices/genai.py",
    "adapters/store/cipher.py",
    "adapters/store/migrate.py",
    "adapters/store/opening.py",
    "adapters/telemetry/opening.py",
    "cli/main.py",
}
FORBIDDEN_NAMES = re.compile(r"manager|helper|utils?$|common|service|_v\d+$|_async$", re.IGNORECASE)
LONGEST_FUNCTION = 60


def name_of(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def trees() -> Iterator[tuple[str, ast.Module]]:
    for module in MODULES:
        yield name_of(module), parse(module.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_every_module_says_what_is_in_it() -> None:
    silent = [
        name for name, tree in trees() if tree.body and not ast.get_docstring(tree, clean=False)
    ]
    assert silent == []


def test_only_boundaries_catch_everything() -> None:
    broad = {
        name
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _swallows(node)
    }
    assert broad <= BOUNDARIES


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Catches everything and does not raise it again."""
    caught = {getattr(handler.type, "id", None)}
    if handler.type is not None and not caught & {"Exception", "BaseException"}:
        return False
    last = handler.body[-1]
    return not (isinstance(last, ast.Raise) and last.exc is None)


def test_imports_stand_at_the_top() -> None:
    lazy = {
        name
        for name, tree in trees()
        for function in functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert lazy <= LAZY_IMPORTS


@pytest.mark.parametrize("banned", ["pickle", "marshal", "shelve"])
def test_nothing_is_read_that_could_run_code(banned: str) -> None:
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert banned not in [alias.name for alias in node.names], name
            if isinstance(node, ast.ImportFrom):
                assert node.module != banned, name


def test_only_the_tools_own_process_runs_source() -> None:
    running = {
        name
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in {"eval", "exec"}
    }
    assert running <= {"adapters/sandbox/child.py"}


def test_functions_stay_short() -> None:
    long = [
        f"{name}:{function.lineno} {function.name}"
        for name, tree in trees()
        for function in functions(tree)
        if (function.end_lineno or 0) - function.lineno + 1 > LONGEST_FUNCTION
    ]
    assert long == []


def test_names_say_what_a_thing_is() -> None:
    vague = [name for name in map(name_of, MODULES) if FORBIDDEN_NAMES.search(Path(name).stem)]
    assert vague == []


def test_tests_wait_on_events_and_never_sleep() -> None:
    """A pause of nothing is a turn of the event loop; anything longer is a guess."""
    tests = Path(__file__).parents[1]
    asleep = [
        f"{path.relative_to(tests)}:{node.lineno}"
        for path in sorted(tests.rglob("*.py"))
        # The one place that may poll, and the simulation, whose clock is its own.
        if path.name != "waiting.py" and path.parent.name != "simulation"
        for node in ast.walk(parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _sleeps(node)
    ]
    assert asleep == []


def _sleeps(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    if getattr(getattr(call.func, "value", None), "id", None) == "clock":
        # A fake clock: who sleeps by it wakes when the test says so.
        return False
    moment = (
        isinstance(call.args[0], ast.Constant) and call.args[0].value == 0 if call.args else True
    )
    return name == "sleep" and not moment
