"""Folders and files that agents can open, search and grep."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

# The tools that an agent has while a folder is attached to it.
FILE_TOOLS = ("open_files", "grep_files", "semantic_search_files")


class FileStatus(StrEnum):
    """What is being done with a file. ``completed`` and ``error`` are final."""

    PENDING = "pending"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    COMPLETED = "completed"
    ERROR = "error"


FINAL_STATUSES = (FileStatus.COMPLETED, FileStatus.ERROR)


class ContentStatus(StrEnum):
    """``receiving``: its bytes are still coming. ``stored``: its text is not extracted yet."""

    RECEIVING = "receiving"
    STORED = "stored"
    EXTRACTED = "extracted"
    FAILED = "failed"


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
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class Content(Struct, frozen=True, kw_only=True):
    """The bytes of a file and the text in them. Files with the same bytes share it."""

    id: str
    organization_id: str
    format: str
    created_at: datetime
    status: ContentStatus = ContentStatus.RECEIVING
    digest: str | None = None
    size: int = 0
    # Of the text.
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
    total_chunks: int | None = None
    chunks_embedded: int | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


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
