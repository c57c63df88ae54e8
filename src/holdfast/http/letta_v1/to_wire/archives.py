"""Archives as V1 shows them (memory-v1 §1)."""

from holdfast.core.archives import Archive
from holdfast.http.letta_v1.schemas import archives as schemas
from holdfast.http.letta_v1.to_wire.model_settings import embedding_config
from holdfast.usecases.reembedding import Reembedding


def archive_state(archive: Archive) -> schemas.Archive:
    return schemas.Archive(
        id=archive.id,
        name=archive.name,
        created_at=archive.created_at,
        updated_at=archive.updated_at,
        description=archive.description,
        embedding_config=embedding_config(archive.embedding, archive.embedding_config),
        metadata=archive.metadata,
        created_by_id=archive.created_by_id,
        last_updated_by_id=archive.last_updated_by_id,
        organization_id=archive.organization_id,
        deduplicate=archive.deduplicate,
    )


def reembed_state(state: Reembedding) -> schemas.ReembedState:
    progress = state.progress
    return schemas.ReembedState(
        archive_id=state.archive_id,
        embedding=state.model,
        complete=state.is_complete,
        total=progress.total,
        embedded=progress.embedded,
        failed=progress.failed,
        given_up=progress.given_up,
        error=progress.error,
    )
