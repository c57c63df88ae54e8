"""The folders and files of an agent on the wire (memory-v1 §5)."""

from datetime import datetime

from msgspec import Struct


class AgentFileAttachment(Struct, frozen=True, kw_only=True):
    id: str
    file_id: str
    file_name: str
    folder_id: str
    folder_name: str
    is_open: bool
    last_accessed_at: datetime
    visible_content: str | None
    start_line: int | None
    end_line: int | None


class AgentFilesPage(Struct, frozen=True, kw_only=True):
    files: list[AgentFileAttachment]
    next_cursor: str | None
    has_more: bool


class FileBlock(Struct, frozen=True, kw_only=True):
    """What the agent sees of a file, in the form of a block."""

    label: str
    value: str
    limit: int
    file_id: str
    source_id: str
    is_open: bool
    last_accessed_at: datetime
    read_only: bool = True


class FileClosed(Struct, frozen=True):
    message: str
