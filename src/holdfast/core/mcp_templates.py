"""Placeholders in the settings of MCP servers: ``{{ NAME }}`` and ``{{ NAME | default }}`` (tools-v1 §1.4)."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

# Its name, and its default if it has one.
PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Z_][A-Z0-9_]*)\s*(?:\|([^}]*))?\}\}")


class Filled(Struct, frozen=True):
    """The text with its values. ``missing``: placeholders without a value and without a default; then ``text`` is the
    original."""

    text: str
    missing: tuple[str, ...] = ()


def fill(template: str, values: Mapping[str, str]) -> Filled:
    """Fill in the placeholders. A value is never searched for placeholders again."""
    missing: list[str] = []

    def find_value(found: re.Match[str]) -> str:
        name, default = found.group(1), found.group(2)
        if name in values:
            return values[name]
        if default is None:
            missing.append(name)
            return ""
        return default.strip()

    text = PLACEHOLDER.sub(find_value, template)
    return Filled(template, tuple(dict.fromkeys(missing))) if missing else Filled(text)
