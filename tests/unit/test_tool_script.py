"""Scripts wrapped into sources that the sandbox can run."""

import pytest

from holdfast.core.tool_source.script import ENTRY_FUNCTION, as_module
from holdfast.errors import ToolSourceInvalid


def value_of(program: str) -> object:
    scope: dict[str, object] = {}
    exec(as_module(program), scope)
    entry = scope[ENTRY_FUNCTION]
    assert callable(entry)
    return entry()


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("1 + 1", "2"),
        ("x = 3; x * 2", "6"),
        ("'é'; 'ü' # and so on", "'ü'"),
        ("x = '''a\n  b'''\nx", "'a\\n  b'"),
        ("(\n1,\n2)\n", "(1, 2)"),
        ("x = 1", None),
        ("None", None),
        ("", None),
        ("# nothing", None),
        ("def f():\n    return 5\nf()", "5"),
        ("for i in range(3):\n    i", None),
        ("x = 1\r\nx", "1"),
    ],
)
def test_the_last_expression_is_the_value(program: str, value: str | None) -> None:
    assert value_of(program) == value


@pytest.mark.parametrize(
    "program", ["def", "x = (", "a\0b", "(" * 5000 + ")" * 5000, " " * 2_000_000]
)
def test_what_is_no_program_is_refused(program: str) -> None:
    with pytest.raises(ToolSourceInvalid):
        as_module(program)
