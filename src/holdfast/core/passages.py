"""Passages: texts that can be searched. A text that is stored in an archive is one passage, however long it is; a file has
many."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.core.search import Match

MAX_TEXT_CHARS = 100_000
MAX_TAGS = 64
MAX_TAG_CHARS = 200
MAX_PASSAGES_AT_ONCE = 1_000
# Of all texts that are stored at once. To index them takes about a second, during which SQLite writes nothing else.
MAX_CHARS_AT_ONCE = 2_000_000
MAX_METADATA_KEYS = 1_000
# Of its JSON.
MAX_METADATA_BYTES = 65_536

_SPACE = re.compile(r"\s+")


class Passage(Struct, frozen=True, kw_only=True):
    """It has an archive, or else a file and its folder. The store assigns ``position``, which increases strictly."""

    id: str
    organization_id: str
    text: str
    created_at: datetime
    updated_at: datetime
    archive_id: str | None = None
    folder_id: str | None = None
    file_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    # What wrote it, if a tool of an agent did.
    run_id: str | None = None
    step_id: str | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    position: int = 0

    @property
    def container_id(self) -> str:
        """The archive or folder, whose embedding model makes its vector."""
        return self.archive_id or self.folder_id or ""


class PassageFilter(Struct, frozen=True, kw_only=True):
    """Which passages are meant. Conditions combine with AND; None means any. ``archive_ids``: in one of these archives.
    ``folder_ids``: in files of one of these folders; without it only passages of archives are meant."""

    archive_ids: tuple[str, ...] | None = None
    folder_ids: tuple[str, ...] | None = None
    file_id: str | None = None
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    # Both included.
    since: datetime | None = None
    until: datetime | None = None
    # A part of the text, ignoring case.
    contains: str | None = None

    @property
    def container_ids(self) -> tuple[str, ...] | None:
        return self.archive_ids if self.folder_ids is None else self.folder_ids


class FoundPassage(Struct, frozen=True):
    passage: Passage
    match: Match


def distinct_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags, each once, in the order in which they were given first."""
    return tuple(dict.fromkeys(tags))


def fingerprint(text: str) -> bytes:
    """The same for texts that differ only in case, spaces and the form of their characters."""
    normal = _SPACE.sub(" ", unicodedata.normalize("NFKC", text)).strip().casefold()
    return hashlib.blake2b(normal.encode(errors="surrogatepass"), digest_size=16).digest()


def render_tags(tags: Sequence[str], most: int) -> str:
    """The tags for the system message, with how many more there are."""
    hidden = len(tags) - most
    shown = ", ".join(tags[:most])
    return shown if hidden <= 0 else f"{shown} (+{hidden} more)"
