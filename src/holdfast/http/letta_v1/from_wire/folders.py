"""Folders to create and to change (memory-v1 §5)."""

from typing import Any

from holdfast.core.files import DEFAULT_CHUNK_TOKENS
from holdfast.http.letta_v1.from_wire.model_settings import dump_sent_fields
from holdfast.http.letta_v1.schemas.folders import FolderCreate, FolderUpdate
from holdfast.http.letta_v1.schemas.model_settings import EmbeddingConfigInput
from holdfast.usecases.folders import NewFolder


def new_folder(body: FolderCreate) -> NewFolder:
    """The whole configuration of an embedding model, the old form, wins over its handle."""
    embedding: dict[str, Any] = {
        "embedding": body.embedding,
        "chunk_tokens": body.embedding_chunk_size or DEFAULT_CHUNK_TOKENS,
    }
    if body.embedding_config is not None:
        embedding |= _embedding_fields(body.embedding_config)
    return NewFolder(
        name=body.name,
        description=body.description,
        instructions=body.instructions,
        metadata=body.metadata,
        **embedding,
    )


def folder_changes(body: FolderUpdate) -> dict[str, object]:
    """The fields that an update changes, by their names in ``core.files.Folder``."""
    given = {
        name: getattr(body, name) for name in ("name", "description", "instructions", "metadata")
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if body.embedding_config is not None:
        changes |= _embedding_fields(body.embedding_config)
    return changes


def _embedding_fields(config: EmbeddingConfigInput) -> dict[str, Any]:
    handle = config.handle or f"{config.embedding_endpoint_type}/{config.embedding_model}"
    return {
        "embedding": handle,
        "embedding_config": dump_sent_fields(config),
        "chunk_tokens": config.embedding_chunk_size or DEFAULT_CHUNK_TOKENS,
    }
