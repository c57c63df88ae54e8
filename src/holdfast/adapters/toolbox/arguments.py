"""Reading the arguments of a call, which the model wrote: a ToolError says what is wrong with one."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.adapters.toolbox.specs import Arguments
from holdfast.errors import ToolError


def read_text(arguments: Arguments, name: str) -> str:
    """The text; empty if it is not given."""
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise ToolError(f"{name} must be a string.")
    return value or ""


def read_strings(arguments: Arguments, name: str) -> tuple[str, ...]:
    """The strings of a list; none if it is not given. Models also write one string without the list."""
    value = arguments.get(name) or ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise ToolError(f"{name} must be a list of strings.")
    return tuple(value)


def read_choices(
    arguments: Arguments, name: str, choices: Sequence[str], default: Sequence[str]
) -> tuple[str, ...]:
    """The strings of a list, each one of the choices; the default if it is not given."""
    values = read_strings(arguments, name) or tuple(default)
    for value in values:
        if value not in choices:
            raise ToolError(f"{name}: {value!r} is none of {', '.join(choices)}.")
    return values


def read_count(arguments: Arguments, name: str, default: int, most: int) -> int:
    """A whole number from 1 to ``most``: one beyond is taken as the nearest."""
    value = arguments.get(name)
    if value is None:
        return default
    try:
        return min(max(int(value), 1), most)
    except (ValueError, TypeError, OverflowError):
        raise ToolError(f"{name} must be a whole number.") from None


def read_date(arguments: Arguments, name: str) -> datetime | None:
    """A date or time of ISO 8601, which may have no offset; None if it is not given."""
    value = arguments.get(name)
    if value in (None, ""):
        return None
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise ToolError(
            f"Invalid {name} format: {value}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
        ) from None
