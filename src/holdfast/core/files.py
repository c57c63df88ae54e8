"""Folders and files that agents can open, search and grep."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from holdfast.core.paging import Page

# How long the parts of a file's text are that are searched, in tokens: unless the folder says otherwise, and at least and at
# most.
DEFAULT_CHUNK_TOKENS = 300
MIN_CHUNK_TOKENS = 25
MAX_CHUNK_TOKENS = 25_000
_CHARS_PER_TOKEN = 4

# The tools that an agent has while a folder is attached to it.
FILE_TOOLS = ("open_files", "grep_files", "semantic_search_files")


class FileStatus(StrEnum):
    """What is being done with a file. ``completed`` and ``error`` are final. A file that is ``deleted`` is not found any more;
    its rows are removed in parts."""

    PENDING = "pending"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    COMPLETED = "completed"
    ERROR = "error"
    DELETED = "deleted"


class ContentStatus(StrEnum):
    """``receiving``: its bytes are still coming. ``stored``: its text is not extracted yet. ``deleted``: no file has it any
    more, and its rows are removed in parts."""

    RECEIVING = "receiving"
    STORED = "stored"
    EXTRACTED = "extracted"
    FAILED = "failed"
    DELETED = "deleted"


class Folder(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    name: str
    created_at: datetime
    updated_at: datetime
    description: str | None = None
    # Shown to agents beside the name.
    instructions: str | None = None
    metadata: dict[str, Any] | None = None
    # The handle of the model that makes vectors of its passages, and its configuration as the caller gave it; None: words
    # only.
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    # How long the parts of the texts of its files are that are searched, in tokens.
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    created_by_id: str | None = None
    last_updated_by_id: str | None = None

    @property
    def chunk_chars(self) -> int:
        tokens = min(max(self.chunk_tokens, MIN_CHUNK_TOKENS), MAX_CHUNK_TOKENS)
        return tokens * _CHARS_PER_TOKEN


class Content(Struct, frozen=True, kw_only=True):
    """The bytes of a file and the text in them. Files with the same bytes share it."""

    id: str
    organization_id: str
    format: str
    created_at: datetime
    status: ContentStatus = ContentStatus.RECEIVING
    digest: str | None = None
    size: int = 0
    # Of the text, as far as it is stored.
    text_parts: int = 0
    lines: int = 0
    characters: int = 0
    # Why there is no text, or less than one would expect, in a sentence for people.
    problem: str | None = None


class File(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    folder_id: str
    # Unique in the folder.
    name: str
    # As it was uploaded.
    original_name: str
    content_id: str
    created_at: datetime
    updated_at: datetime
    status: FileStatus = FileStatus.PARSING
    replaces_id: str | None = None
    media_type: str | None = None
    size: int = 0
    error_message: str | None = None
    # How many passages its text gives; None until its text is there.
    total_chunks: int | None = None
    # How many of them are stored.
    chunks_stored: int = 0
    chunks_embedded: int | None = None
    # How often a server began to process it since it last got further.
    attempts: int = 0
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class TextPart(Struct, frozen=True):
    """A part of the text of a content; all of them together are the text. It begins at the line ``first_line``, counted from
    1. ``is_continued``: in the middle of that line, which is longer than a part."""

    number: int
    first_line: int
    is_continued: bool
    text: str


class FolderQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of folders. ``name_contains``: a part of the name, whatever its case; None means any."""

    page: Page
    name_contains: str | None = None


class FolderUsage(Struct, frozen=True):
    """How many files a folder has, and how many bytes they have together."""

    files: int
    bytes: int


class AgentFile(Struct, frozen=True, kw_only=True):
    """A file of a folder that is attached to the agent. ``start_line`` and ``end_line``: what the agent sees of it, counted
    from 1 and both included; None: from the first line, to the last."""

    id: str
    agent_id: str
    file_id: str
    created_at: datetime
    last_accessed_at: datetime
    is_open: bool = False
    start_line: int | None = None
    end_line: int | None = None


def path_name(folder_name: str, file_name: str) -> str:
    """The name of a file as agents see it."""
    return f"{folder_name}/{file_name}"


def count_lines(text: str) -> int:
    """How many lines the text has. A line end at the end of the text begins no further line."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def split_into_parts(text: str, part_chars: int) -> Iterator[TextPart]:
    """Split a text into parts of at most ``part_chars`` characters, which begin at a line where that is possible."""
    start = number = 0
    line = 1
    is_continued = False
    while start < len(text):
        end = _find_part_end(text, start, part_chars)
        part = text[start:end]
        yield TextPart(number, line, is_continued, part)
        line += part.count("\n")
        is_continued = not part.endswith("\n")
        start, number = end, number + 1


def _find_part_end(text: str, start: int, part_chars: int) -> int:
    end = start + part_chars
    if end >= len(text):
        return len(text)
    line_end = text.rfind("\n", start, end)
    return end if line_end < 0 else line_end + 1
