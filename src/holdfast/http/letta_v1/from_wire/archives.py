"""Archives to create and to change (memory-v1 §1)."""

from holdfast.http.letta_v1.from_wire.model_settings import dump_sent_fields
from holdfast.http.letta_v1.schemas.archives import ArchiveCreate, ArchiveUpdate
from holdfast.usecases.archives import NewArchive


def new_archive(body: ArchiveCreate) -> NewArchive:
    return NewArchive(
        name=body.name,
        description=body.description,
        embedding=_embedding_handle(body),
        embedding_config=dump_sent_fields(body.embedding_config),
        deduplicate=bool(body.deduplicate),
    )


def _embedding_handle(body: ArchiveCreate) -> str | None:
    """The old full configuration wins over the handle."""
    config = body.embedding_config
    if config is None:
        return body.embedding
    return config.handle or f"{config.embedding_endpoint_type}/{config.embedding_model}"


def archive_changes(body: ArchiveUpdate) -> dict[str, object]:
    """The fields that an update changes, by their names in ``core.archives.Archive``."""
    return body.model_dump(exclude_none=True)
