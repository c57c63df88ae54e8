"""CONTRIBUTING.md, pyproject.toml and the folders say the same: one list of layers, one set of numbers."""

import re
import tomllib

from tests.architecture.modules import LONGEST_FUNCTION, LONGEST_MODULE, ROOT, SOURCE

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def import_layers() -> list[list[str]]:
    """The layers that import-linter holds, from the top, without the name of the package."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [item["layers"] for item in contracts if item["name"] == "Imports only go down"]
    return [
        [part.strip().removeprefix("holdfast.") for part in layer.split("|")] for layer in layers
    ]


def test_every_part_of_the_package_is_on_one_floor() -> None:
    parts = {
        path.name.removesuffix(".py")
        for path in SOURCE.iterdir()
        if path.is_dir() or path.suffix == ".py"
        if not path.name.startswith("__")
    }
    assert sorted(part for layer in import_layers() for part in layer) == sorted(parts)


def test_the_page_shows_the_layers_that_the_linter_holds() -> None:
    (shown,) = re.findall(r"^```\n(cli .*)\n```$", PAGE, re.MULTILINE)
    assert [
        [part.strip() for part in floor.split("|")] for floor in shown.split(">")
    ] == import_layers()


def test_the_page_names_the_limits_that_the_tests_hold() -> None:
    said = re.search(r"function has at most (\d+) lines of code and a module (\d+)", PAGE)
    assert said is not None
    assert tuple(map(int, said.groups())) == (LONGEST_FUNCTION, LONGEST_MODULE)


def test_every_command_on_the_page_can_be_made() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", PAGE)) <= targets
