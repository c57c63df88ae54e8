"""What a setting is: its description for operators, and how its text is parsed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    description: str
    # The first one is shown; the others are for operators who come from elsewhere.
    variables: tuple[str, ...]
    # Raises ValueError for a text that cannot be used; ``accepts`` says what can.
    parse: Callable[[str], Any] = str
    accepts: str = "any text"
    # In words, where the default depends on other settings.
    default: str | None = None
    # A secret has no option: every user of a machine can read the command lines of all others.
    secret: bool = False
