"""Folders on the wire (memory-v1 §5)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from holdfast.core.files import DEFAULT_CHUNK_TOKENS, MAX_CHUNK_TOKENS, MIN_CHUNK_TOKENS
from holdfast.http.letta_v1.schemas.limits import JsonObject
from holdfast.http.letta_v1.schemas.model_settings import EmbeddingConfigInput
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS, Handle

# The system message shows them.
MAX_DESCRIPTION_CHARS = 100_000

FolderName = Annotated[str, StringConstraints(pattern=r"\S"), Field(max_length=MAX_NAME_CHARS)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)]


class FolderCreate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: FolderName
    description: Description | None = None
    instructions: Description | None = None
    metadata: JsonObject | None = None
    embedding: Handle | None = None
    embedding_chunk_size: Annotated[
        int | None, Field(ge=MIN_CHUNK_TOKENS, le=MAX_CHUNK_TOKENS, description="Tokens.")
    ] = DEFAULT_CHUNK_TOKENS
    embedding_config: EmbeddingConfigInput | None = None


class FolderUpdate(BaseModel):
    """Null leaves a field as it is."""

    model_config = ConfigDict(extra="ignore")

    name: FolderName | None = None
    description: Description | None = None
    instructions: Description | None = None
    metadata: JsonObject | None = None
    embedding_config: EmbeddingConfigInput | None = None


class Folder(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str | None
    instructions: str | None
    metadata: dict[str, Any] | None
    embedding_config: EmbeddingConfig | None
    created_at: datetime
    updated_at: datetime
    created_by_id: str | None
    last_updated_by_id: str | None
    organization_id: str
    vector_db_provider: Literal["native"] = "native"


class FolderFile(Struct, frozen=True, kw_only=True):
    file_id: str
    file_name: str
    file_size: int


class FolderSummary(Struct, frozen=True, kw_only=True):
    source_id: str
    source_name: str
    file_count: int
    total_size: int
    files: tuple[FolderFile, ...]


class FoldersSummary(Struct, frozen=True, kw_only=True):
    total_sources: int
    total_files: int
    total_size: int
    sources: tuple[FolderSummary, ...]
