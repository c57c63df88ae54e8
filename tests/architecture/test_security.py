"""Every line of the threat model names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ATTACKS = "## What is attacked, and what holds"
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def attack_rows() -> list[str]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition(ATTACKS)[2]
    table = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return table[2:]


def names_of_tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, functions) and node.name.startswith("test_")
    }


def test_there_are_attacks() -> None:
    assert len(attack_rows()) >= 20


@pytest.mark.parametrize("row", attack_rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_line_names_tests_that_exist(row: str) -> None:
    named = TEST_NAME.findall(row.split("|")[3])
    assert named, "this line names no test"
    for file, function in named:
        assert (ROOT / file).is_file(), file
        assert not function or function in names_of_tests(file), f"{file}::{function}"
