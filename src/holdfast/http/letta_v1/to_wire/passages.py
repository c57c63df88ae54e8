"""Passages as V1 shows them, and what a search has found (memory-v1 §1)."""

from collections.abc import Mapping

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core.archives import Archive
from holdfast.core.embeddings import Vector, to_numbers
from holdfast.core.files import File, Folder, path_name
from holdfast.core.passages import FoundPassage, Passage
from holdfast.core.system_prompt import load_zone
from holdfast.http.letta_v1.schemas import passages as schemas
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig
from holdfast.http.letta_v1.to_wire.folders import folder_embedding_config
from holdfast.http.letta_v1.to_wire.model_settings import embedding_config


def passage_state(
    passage: Passage, archives: Mapping[str, Archive], vector: Vector | None = None
) -> schemas.Passage:
    """``archives``: by their ids, for the embedding model of the passage. ``vector``: only in the answer to the request that
    has stored it (memory-v1 §4.6)."""
    return schemas.Passage(
        id=passage.id,
        text=passage.text,
        embedding=None if vector is None else list(to_numbers(vector)),
        embedding_config=_embedding_config(archives.get(passage.archive_id or "")),
        archive_id=passage.archive_id,
        source_id=passage.folder_id,
        file_id=passage.file_id,
        file_name=None,
        tags=passage.tags,
        metadata=passage.metadata,
        created_at=passage.created_at,
        updated_at=passage.updated_at,
        created_by_id=passage.created_by_id,
        last_updated_by_id=passage.last_updated_by_id,
        organization_id=passage.organization_id,
        run_id=passage.run_id or UNSET,
        step_id=passage.step_id or UNSET,
    )


def file_passage_state(
    passage: Passage, folder: Folder, files: Mapping[str, File]
) -> schemas.Passage:
    """A passage of a file of the folder. ``files``: by their ids."""
    file = files.get(passage.file_id or "")
    return replace(
        passage_state(passage, {}),
        embedding_config=folder_embedding_config(folder),
        file_name=file and path_name(folder.name, file.name),
    )


def _embedding_config(archive: Archive | None) -> EmbeddingConfig | None:
    if archive is None:
        return None
    return embedding_config(archive.embedding, archive.embedding_config)


def search_result(
    found: FoundPassage, mode: str, archives: Mapping[str, Archive]
) -> schemas.PassageSearchResult:
    match = found.match
    return schemas.PassageSearchResult(
        passage=passage_state(found.passage, archives),
        score=match.score,
        metadata=schemas.PassageRank(
            combined_score=match.score,
            vector_rank=match.vector_rank,
            fts_rank=match.word_rank,
            search_mode=mode,
        ),
    )


def agent_result(found: FoundPassage, timezone: str) -> schemas.AgentPassageResult:
    passage = found.passage
    return schemas.AgentPassageResult(
        id=passage.id,
        timestamp=passage.created_at.astimezone(load_zone(timezone)).isoformat(),
        content=passage.text,
        tags=passage.tags,
    )
