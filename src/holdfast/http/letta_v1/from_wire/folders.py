"""Folders to create and to change (memory-v1 §5)."""

from typing import Any

from holdfast.core.files import DEFAULT_CHUNK_TOKENS
from holdfast.http.letta_v1.from_wire.model_settings import dump_sent_fields
from holdfast.http.letta_v1.schemas.folders import FolderCreate, FolderUpdate
from holdfast.usecases.folders import NewFolder


def new_folder(body: FolderCreate) -> NewFolder:
    config = body.embedding_config
    chunk_tokens = body.embedding_chunk_size if config is None else config.embedding_chunk_size
    return NewFolder(
        name=body.name,
        description=body.description,
        instructions=body.instructions,
        metadata=body.metadata,
        embedding=body.embedding,
        embedding_config=dump_sent_fields(config),
        chunk_tokens=chunk_tokens or DEFAULT_CHUNK_TOKENS,
    )


def folder_changes(body: FolderUpdate) -> dict[str, Any]:
    """The fields that an update changes, by their names in ``core.files.Folder``."""
    given = {
        name: getattr(body, name) for name in ("name", "description", "instructions", "metadata")
    }
    changes = {name: value for name, value in given.items() if value is not None}
    config = body.embedding_config
    if config is not None:
        changes["embedding_config"] = dump_sent_fields(config)
        changes["chunk_tokens"] = config.embedding_chunk_size or DEFAULT_CHUNK_TOKENS
    return changes
