"""What functions and their calls may be called, on both OpenAI wires. Pure."""

import re
from collections.abc import Iterator

_PATTERN = "^[a-zA-Z0-9_-]+$"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_CHARS = 64


def name_refusals(where: str, name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield (
            f"Invalid '{where}': string does not match pattern. "
            f"Expected a string that matches the pattern '{_PATTERN}'."
        )
    yield from length_refusals(where, name, _MAX_CHARS)


def length_refusals(where: str, text: str, most: int) -> Iterator[str]:
    if len(text) > most:
        yield (
            f"Invalid '{where}': string too long. Expected a string with maximum length "
            f"{most}, but got a string with length {len(text)} instead."
        )
