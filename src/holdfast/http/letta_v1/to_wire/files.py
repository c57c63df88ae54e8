"""Files of folders as V1 shows them (memory-v1 §5)."""

from holdfast.core.files import File, path_name
from holdfast.http.letta_v1.schemas.files import FileMetadata
from holdfast.usecases.files import FileView
from holdfast.usecases.uploads import Uploaded


def file_state(view: FileView) -> FileMetadata:
    """A file as its folder lists it."""
    return _file_state(view.file, view.file.name, view.text)


def uploaded_state(uploaded: Uploaded) -> FileMetadata:
    """A file as the answer to its upload shows it: with the name of the folder."""
    return _file_state(uploaded.file, path_name(uploaded.folder.name, uploaded.file.name), None)


def _file_state(file: File, name: str, text: str | None) -> FileMetadata:
    return FileMetadata(
        id=file.id,
        source_id=file.folder_id,
        file_name=name,
        original_file_name=file.original_name,
        file_type=file.media_type,
        file_size=file.size,
        processing_status=file.status,
        error_message=file.error_message,
        total_chunks=file.total_chunks,
        chunks_embedded=file.chunks_embedded,
        content=text,
        created_at=file.created_at,
        updated_at=file.updated_at,
        organization_id=file.organization_id,
    )
