"""The names of uploaded files (memory-v1 §5.3)."""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Final

from holdfast.errors import InvalidArgument

MAX_FILE_NAME_CHARS: Final = 255
# Kept free for a number, so that a second file of the name fits.
_SUFFIX_CHARS: Final = 6

# What file systems or shells give a meaning to, and control characters.
_FORBIDDEN: Final = re.compile(r'[\x00-\x1f\x7f<>:"|?*]')


class DuplicateHandling(StrEnum):
    """What happens to an upload whose name a file of the folder has already."""

    # It gets a name with a number.
    SUFFIX = "suffix"
    # Nothing is stored; the file that is there is returned.
    SKIP = "skip"
    ERROR = "error"
    # It takes the place of that file once its text is there.
    REPLACE = "replace"


def clean_file_name(given: str) -> str:
    """The name of an uploaded file without folders and without characters that make trouble. InvalidArgument if nothing is
    left of it, or if it would be hidden."""
    name = _FORBIDDEN.sub("", re.split(r"[/\\]", given)[-1]).strip()
    base, extension = split_extension(name)
    if base.startswith("."):
        raise InvalidArgument(f"Invalid filename - derived file name {base} cannot start with '.'")
    base = base[: max(1, MAX_FILE_NAME_CHARS - _SUFFIX_CHARS - len(extension))]
    if not base:
        raise InvalidArgument("Invalid filename - the file has no name")
    return (base + extension)[:MAX_FILE_NAME_CHARS]


def split_extension(name: str) -> tuple[str, str]:
    """``notes.txt`` is ``notes`` and ``.txt``. A name that begins with its only dot has no extension."""
    base, dot, extension = name.rpartition(".")
    return (base, dot + extension) if base.strip(".") else (name, "")


def choose_free_name(name: str, taken: Collection[str]) -> str:
    """The name itself, or with the smallest number that makes it one that is not taken."""
    if name not in taken:
        return name
    base, extension = split_extension(name)
    numbers = range(1, len(taken) + 2)
    return next(
        free for number in numbers if (free := f"{base}_({number}){extension}") not in taken
    )
