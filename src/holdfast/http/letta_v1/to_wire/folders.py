"""Folders as V1 shows them (memory-v1 §5)."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.files import Folder
from holdfast.http.letta_v1.schemas import folders as schemas
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig
from holdfast.http.letta_v1.to_wire.model_settings import embedding_config
from holdfast.usecases.folders import FolderContents


def folder_state(folder: Folder) -> schemas.Folder:
    return schemas.Folder(
        id=folder.id,
        name=folder.name,
        description=folder.description,
        instructions=folder.instructions,
        metadata=folder.metadata,
        embedding_config=folder_embedding_config(folder),
        created_at=folder.created_at,
        updated_at=folder.updated_at,
        created_by_id=folder.created_by_id,
        last_updated_by_id=folder.last_updated_by_id,
        organization_id=folder.organization_id,
    )


def folder_embedding_config(folder: Folder) -> EmbeddingConfig | None:
    config = embedding_config(folder.embedding, folder.embedding_config)
    return config and replace(config, embedding_chunk_size=folder.chunk_tokens)


def folders_summary(
    contents: Sequence[FolderContents], *, is_detailed: bool
) -> schemas.FoldersSummary:
    return schemas.FoldersSummary(
        total_sources=len(contents),
        total_files=sum(each.usage.files for each in contents),
        total_size=sum(each.usage.bytes for each in contents),
        sources=tuple(map(_folder_summary, contents)) if is_detailed else (),
    )


def _folder_summary(contents: FolderContents) -> schemas.FolderSummary:
    return schemas.FolderSummary(
        source_id=contents.folder.id,
        source_name=contents.folder.name,
        file_count=contents.usage.files,
        total_size=contents.usage.bytes,
        files=tuple(
            schemas.FolderFile(file_id=file.id, file_name=file.name, file_size=file.size)
            for file in contents.files
        ),
    )
