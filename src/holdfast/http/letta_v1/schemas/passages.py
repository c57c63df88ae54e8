"""Passages on the wire, and the search for them (memory-v1 §1)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from pydantic import BaseModel, ConfigDict, Field

from holdfast.core.passages import (
    MAX_METADATA_KEYS,
    MAX_PASSAGES_AT_ONCE,
    MAX_TAG_CHARS,
    MAX_TAGS,
)
from holdfast.http.letta_v1.schemas.archives import Deduplicate
from holdfast.http.letta_v1.schemas.dates import OptionalDate
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig

# Of one search.
MAX_FOUND = 100

TagMatchMode = Literal["any", "all"]
PassageTags = Annotated[
    list[Annotated[str, Field(max_length=MAX_TAG_CHARS)]], Field(max_length=MAX_TAGS)
]
PassageMetadata = Annotated[dict[str, Any], Field(max_length=MAX_METADATA_KEYS)]


class AgentPassageCreate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str
    tags: PassageTags | None = None
    created_at: OptionalDate = None
    deduplicate: Deduplicate = None


class PassageItem(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str
    metadata: PassageMetadata | None = None
    tags: PassageTags | None = None
    created_at: OptionalDate = None


class PassageCreate(PassageItem):
    deduplicate: Deduplicate = None


class PassageBatch(BaseModel):
    model_config = ConfigDict(extra="ignore")

    passages: Annotated[list[PassageItem], Field(max_length=MAX_PASSAGES_AT_ONCE)]
    deduplicate: Deduplicate = None


class PassageSearchBody(BaseModel):
    """``agent_id`` wins over ``archive_id``; without both all archives are searched."""

    model_config = ConfigDict(extra="ignore")

    query: str | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: Names | None = None
    tag_match_mode: TagMatchMode = "any"
    limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 50
    start_date: OptionalDate = None
    end_date: OptionalDate = None


class Passage(Struct, frozen=True, kw_only=True):
    id: str
    text: str
    # Only in the answer to the request that stored it.
    embedding: list[float] | None
    embedding_config: EmbeddingConfig | None
    archive_id: str | None
    source_id: str | None
    file_id: str | None
    file_name: str | None
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    created_by_id: str | None
    last_updated_by_id: str | None
    organization_id: str
    is_deleted: bool = False
    # Not in V1: what wrote it, if a tool of an agent did.
    run_id: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET


class PassageRank(Struct, frozen=True, kw_only=True):
    """Ranks count from 1; null if the passage was not found in this way."""

    combined_score: float
    vector_rank: int | None
    fts_rank: int | None
    search_mode: str


class PassageSearchResult(Struct, frozen=True, kw_only=True):
    passage: Passage
    score: float
    metadata: PassageRank


class AgentPassageResult(Struct, frozen=True, kw_only=True):
    """``timestamp`` is in the agent's timezone."""

    id: str
    timestamp: str
    content: str
    tags: tuple[str, ...]


class AgentPassageResults(Struct, frozen=True, kw_only=True):
    results: list[AgentPassageResult]
    count: int


class PassageDeleted(Struct, frozen=True):
    message: str


class PassagesDeleted(Struct, frozen=True):
    """Not in V1."""

    deleted: int
