"""Placeholders in the settings of MCP servers (tools-v1 §1.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.mcp_servers import MASK, mask_secret
from holdfast.core.mcp_templates import Filled, fill

NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]*", fullmatch=True)
TEXTS = st.text(st.characters(exclude_characters="{}|"), max_size=20)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Bearer {{ KEY }}", Filled("Bearer abc")),
        ("{{KEY}}", Filled("abc")),
        ("{{ KEY | none }}", Filled("abc")),
        ("{{ OTHER | none }}", Filled("none")),
        ("{{ OTHER |}}", Filled("")),
        ("{{ OTHER | two words }}", Filled("two words")),
        ("{{ KEY }}-{{ KEY }}", Filled("abc-abc")),
        ("{{ OTHER }}", Filled("{{ OTHER }}", ("OTHER",))),
        # All of the text stays as it is, also what could be filled in.
        ("{{ KEY }} {{ OTHER }}", Filled("{{ KEY }} {{ OTHER }}", ("OTHER",))),
        ("{{ key }}", Filled("{{ key }}")),
        ("{{ 1KEY }}", Filled("{{ 1KEY }}")),
        ("{ KEY }", Filled("{ KEY }")),
        ("{{ KEY", Filled("{{ KEY")),
        ("{{ OTHER | a}b }}", Filled("{{ OTHER | a}b }}")),
    ],
)
def test_placeholders_are_filled_in(template: str, filled: Filled) -> None:
    assert fill(template, {"KEY": "abc"}) == filled


def test_a_value_is_not_searched_for_placeholders() -> None:
    assert fill("{{ A }}", {"A": "{{ B }}", "B": "secret"}) == Filled("{{ B }}")


@given(NAMES, TEXTS, TEXTS, st.text(max_size=20))
def test_what_is_around_a_placeholder_stays(name: str, before: str, after: str, value: str) -> None:
    template = f"{before}{{{{ {name} }}}}{after}"

    assert fill(template, {name: value}) == Filled(f"{before}{value}{after}")
    assert fill(template, {}) == Filled(template, (name,))


@given(NAMES, TEXTS)
def test_a_default_stands_for_a_missing_value(name: str, default: str) -> None:
    assert fill(f"{{{{ {name} | {default} }}}}", {}) == Filled(default.strip())


@given(st.text(alphabet="{}|A _", max_size=200))
def test_any_text_is_filled_or_stays(template: str) -> None:
    filled = fill(template, {})

    assert filled.text == template if filled.missing else True


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("abc", MASK),
        ("Bearer abc", f"Bearer {MASK}"),
        ("{{ KEY }}", "{{ KEY }}"),
        ("Bearer {{ KEY | none }}", "Bearer {{ KEY | none }}"),
        ("{{KEY|}} {{ KEY | null }}", "{{KEY|}} {{ KEY | null }}"),
        ("Bearer {{ KEY | sk-real }}", f"Bearer {{{{ KEY | {MASK} }}}}"),
        ("{{ KEY|Abc }}", f"{{{{ KEY | {MASK} }}}}"),
        ("{{ KEY | two words }}", f"{{{{ KEY | {MASK} }}}}"),
        ("{{ KEY | swordfish }}", f"{{{{ KEY | {MASK} }}}}"),
        (f"{{{{ KEY | {MASK} }}}}", f"{{{{ KEY | {MASK} }}}}"),
        ("abc{{ KEY }}def", f"{MASK}{{{{ KEY }}}}{MASK}"),
        ("", ""),
    ],
)
def test_answers_hide_all_but_scheme_and_placeholders(value: str, shown: str) -> None:
    assert mask_secret(value) == shown


@given(st.text(st.characters(categories=["L", "N"]), min_size=9, max_size=60))
def test_no_part_of_a_secret_is_shown(secret: str) -> None:
    default = f"{{{{ KEY | {secret} }}}}"
    for value in (secret, f"Bearer {secret}", f"{{{{ KEY }}}} {secret}", default):
        assert secret not in mask_secret(value)
