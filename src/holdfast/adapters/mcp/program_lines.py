"""Lines that a program writes: in which pace they are read, and as what those on its stderr are shown.

A program may print its secrets, in any line, whole or in the middle of one that is cut.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final, TypeVar
from urllib.parse import urlsplit

from holdfast.core.mcp_servers import MASK, Endpoint

# After how many lines others get their turn: a millisecond's work.
_LINES_PER_TURN: Final = 200
# What is kept of a line, and what is shown of it.
_MAX_LINE_BYTES: Final = 16 * 1024
_MAX_SHOWN_CHARS: Final = 400
# Shorter values are words like ``true``; they are not hidden.
_SHORTEST_SECRET: Final = 6
_SECRET_OPTION: Final = re.compile(
    r"--?[\w-]*(?:key|token|secret|passw|pwd|auth|credential)[\w-]*", re.IGNORECASE
)
# What looks like a key: letters and digits, mixed, and no path, address or name of a package.
_KEY: Final = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[\w+=-]{20,}")

T = TypeVar("T")


async def pace(lines: Iterable[T]) -> AsyncIterator[T]:
    """The same, giving way to others now and then, and at the end."""
    for number, line in enumerate(lines, 1):
        yield line
        if number % _LINES_PER_TURN == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0)


class StderrLines:
    """Splits what a program writes to its stderr into lines that may be shown."""

    def __init__(self, endpoint: Endpoint) -> None:
        # The longest first: a value may begin with another one.
        self._secrets = sorted(set(_list_secrets(endpoint)), key=len, reverse=True)
        self._rest = b""

    def split(self, chunk: bytes) -> Iterator[str]:
        """The lines that are complete now; some are empty. An empty chunk is the end of the last one."""
        *complete, rest = chunk.split(b"\n") if chunk else (b"", b"")
        for end in complete:
            line, self._rest = self._rest + end, b""
            yield self._render(line)
        # One byte more than is kept, which says that it was cut.
        self._rest = (self._rest + rest)[: _MAX_LINE_BYTES + 1]

    def _render(self, line: bytes) -> str:
        text = line[:_MAX_LINE_BYTES].decode(errors="replace").strip()
        if not text:
            return text
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        if len(line) > _MAX_LINE_BYTES and self._secrets:
            # It may end in the middle of one. Masks may be longer than what they hide, but not twice as long.
            text = text[: max(0, len(text) - 2 * len(self._secrets[0]))]
        return text[:_MAX_SHOWN_CHARS]


def _list_secrets(endpoint: Endpoint) -> Iterator[str]:
    values = [value for _, value in endpoint.env]
    for value in (*values, *_list_secret_arguments(endpoint.args)):
        for part in (value, *value.splitlines()):
            if len(part.strip()) >= _SHORTEST_SECRET:
                yield part.strip()


def _list_secret_arguments(arguments: tuple[str, ...]) -> Iterator[str]:
    """Most arguments are no secrets, and errors are useless without them."""
    option = ""
    for argument in arguments:
        name, _, value = argument.partition("=")
        if argument.startswith("-") and value:
            if _SECRET_OPTION.fullmatch(name):
                yield value
        elif not argument.startswith("-") and _SECRET_OPTION.fullmatch(option):
            yield argument
        if _KEY.fullmatch(value or argument):
            yield value or argument
        if "@" in argument and (password := _read_password(value or argument)):
            yield password
        option = argument


def _read_password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None
