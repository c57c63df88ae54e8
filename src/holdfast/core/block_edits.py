"""How an agent's memory tools edit the value of a block. A ToolError goes back to the model."""

import re

from holdfast.core.blocks import LABEL_PATTERN, MAX_LABEL_CHARS
from holdfast.errors import ToolError

READ_ONLY_ERROR = "Error This block is read-only and cannot be edited."

_LINE_NUMBER = re.compile(r"^\s*\d+\s*→", re.MULTILINE)


def insert(value: str, text: str, line: int = -1) -> str:
    """The value with ``text`` inserted after line number ``line``; 0 is the start, -1 the end."""
    _refuse_line_numbers(text)
    lines = value.split("\n") if value else []
    if line < -1 or line > len(lines):
        raise ToolError(
            f"Error: insert_line {line} is out of range: it must be between 0 and {len(lines)}, or -1 for the end."
        )
    at = len(lines) if line == -1 else line
    return "\n".join([*lines[:at], *text.split("\n"), *lines[at:]])


def replace(value: str, old: str, new: str) -> str:
    """The value with the only occurrence of ``old`` replaced; ToolError if there is not exactly one."""
    _refuse_line_numbers(old)
    _refuse_line_numbers(new)
    found = value.count(old) if old else 0
    if found == 0:
        raise ToolError("Error: old_string was not found in the block. It must match exactly.")
    if found > 1:
        raise ToolError(
            f"Error: old_string was found {found} times. Add more of the text around it so that it is unique."
        )
    return value.replace(old, new)


def apply_patch(value: str, patch: str) -> str:
    """Apply a unified diff to the value. The lines that a hunk keeps and removes must occur exactly once; its line
    numbers are ignored."""
    hunks = _parse_hunks(patch)
    if not hunks:
        raise ToolError("Error: the patch changes nothing: no line starts with '+' or '-'.")
    for before, after in hunks:
        value = _apply_hunk(value, before, after)
    return value


Hunk = tuple[list[str], list[str]]


def _parse_hunks(patch: str) -> list[Hunk]:
    """The lines before and after each hunk that changes something."""
    hunks: list[Hunk] = [([], [])]
    for line in patch.strip("\n").split("\n"):
        if line.startswith("@@"):
            hunks.append(([], []))
        elif line.startswith(("---", "+++", "\\")):
            continue
        else:
            _add_line(hunks[-1], line)
    return [hunk for hunk in hunks if hunk[0] != hunk[1]]


def _add_line(hunk: Hunk, line: str) -> None:
    before, after = hunk
    sign, text = line[:1], line[1:]
    if sign not in ("", " ", "+", "-"):
        raise ToolError(
            f"Error: a line of a patch starts with a space, '-', '+' or '@@', unlike {line[:60]!r}."
        )
    if sign != "+":
        before.append(text)
    if sign != "-":
        after.append(text)


def _apply_hunk(value: str, before: list[str], after: list[str]) -> str:
    lines = value.split("\n") if value else []
    if not before:
        return "\n".join([*lines, *after])
    size = len(before)
    places = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == before]
    if len(places) != 1:
        shown = "\n".join(before)
        raise ToolError(
            f"Error: these lines of the patch must stand in the block exactly once, not {len(places)} times. "
            f"The block was not changed.\n{shown}"
        )
    at = places[0]
    return "\n".join([*lines[:at], *after, *lines[at + size :]])


def label_from_path(path: str) -> str:
    """The label of the block at ``/memories/<label>``."""
    label = path.removeprefix("/memories/").strip("/")
    if not re.fullmatch(LABEL_PATTERN, label) or len(label) > MAX_LABEL_CHARS:
        raise ToolError(
            f"Error: {path!r} is no path of a memory block. It is /memories/<label>; a label has letters, digits, "
            f"'_', '-' and '/', at most {MAX_LABEL_CHARS}."
        )
    return label


def _refuse_line_numbers(text: str) -> None:
    if _LINE_NUMBER.search(text):
        raise ToolError(
            "Error: leave out the line number prefixes: they are not part of the block."
        )
