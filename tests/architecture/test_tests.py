"""The rules of CONTRIBUTING.md for the tests."""

import ast

from tests.architecture.modules import TESTS, functions, imported_modules, read_trees

# Where tests may poll, because another process sets no event of ours; the simulation, whose clock is its own; the
# soak, which takes samples at a pace; and the chaos, which disturbs servers at a pace.
MAY_SLEEP = ("support/waiting.py", "simulation/", "soak/", "chaos/")


def is_test(name: str) -> bool:
    return name.rpartition("/")[2].startswith("test_")


def test_no_test_imports_another_test() -> None:
    """What two of them need is in tests/doubles or tests/support."""
    tests = {f"tests.{name.removesuffix('.py').replace('/', '.')}" for name in read_trees(TESTS)}
    files = {module for module in tests if module.rpartition(".")[2].startswith("test_")}
    files |= {module for module in tests if module.endswith(".conftest")}
    importing = {
        (name, module)
        for name, tree in read_trees(TESTS).items()
        for module in (*imported_modules(tree), *_imported_members(tree))
        if module in files
    }
    assert importing == set()


def _imported_members(tree: ast.Module) -> list[str]:
    """What ``from tests.wire import test_runs`` imports."""
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def test_tests_are_in_test_files_and_their_names_are_sentences() -> None:
    misplaced, short = [], []
    for name, tree in read_trees(TESTS).items():
        for function in functions(tree):
            if function.name.startswith("test_") and function in tree.body:
                misplaced += [] if is_test(name) else [f"{name} {function.name}"]
                short += [] if function.name.count("_") >= 3 else [f"{name} {function.name}"]
    assert misplaced == []
    assert short == []


def test_tests_wait_on_events_and_never_sleep() -> None:
    """A pause of nothing is a turn of the event loop; anything longer is a guess."""
    asleep = [
        f"{name}:{node.lineno}"
        for name, tree in read_trees(TESTS).items()
        if not name.startswith(MAY_SLEEP)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _sleeps(node)
    ]
    assert asleep == []


def _sleeps(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    if getattr(getattr(call.func, "value", None), "id", None) == "clock":
        # A fake clock: who sleeps by it wakes when the test says so.
        return False
    is_nothing = (
        isinstance(call.args[0], ast.Constant) and call.args[0].value == 0 if call.args else True
    )
    return name == "sleep" and not is_nothing
