"""Files of folders on the wire (memory-v1 §5)."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.files import FileStatus


class FileMetadata(Struct, frozen=True, kw_only=True):
    id: str
    source_id: str
    file_name: str
    original_file_name: str
    file_type: str | None
    file_size: int
    processing_status: FileStatus
    error_message: str | None
    total_chunks: int | None
    chunks_embedded: int | None
    content: str | None
    created_at: datetime
    updated_at: datetime
    organization_id: str
    # V1 has these for files that it read from its own disk: always empty.
    file_path: str | None = None
    file_creation_date: str | None = None
    file_last_modified_date: str | None = None
    is_deleted: bool = False
