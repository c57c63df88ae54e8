"""Archives on the wire (memory-v1 §1)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from holdfast.core.archives import MAX_DESCRIPTION_CHARS
from holdfast.http.letta_v1.schemas.model_settings import EmbeddingConfigInput
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS, Handle

# Something other than spaces.
Name = Annotated[str, StringConstraints(pattern=r"\S", max_length=MAX_NAME_CHARS)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)]
Deduplicate = Annotated[
    bool | None,
    Field(
        description="Not in V1: whether a passage whose text is there already is not stored again."
    ),
]


class ArchiveCreate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: Name
    description: Description | None = None
    embedding: Handle | None = None
    embedding_config: Annotated[EmbeddingConfigInput | None, Field(deprecated=True)] = None
    deduplicate: Deduplicate = None


class ArchiveUpdate(BaseModel):
    """Null leaves a field unchanged."""

    model_config = ConfigDict(extra="ignore")

    name: Name | None = None
    description: Description | None = None
    deduplicate: Deduplicate = None


class ArchiveReembed(BaseModel):
    model_config = ConfigDict(extra="ignore")

    embedding: Annotated[Handle, Field(description="The handle of the new embedding model.")]
    retry_failed: Annotated[
        bool, Field(description="Try again what was given up, for instance with a wrong key.")
    ] = False
    skip_failed: Annotated[
        bool, Field(description="Change the model although some passages were given up.")
    ] = False


class ReembedState(Struct, frozen=True, kw_only=True):
    archive_id: str
    embedding: str
    # Whether the archive is searched with vectors of this model.
    complete: bool
    total: int
    embedded: int
    failed: int
    # Of those that failed: not tried again by themselves.
    given_up: int
    error: str | None


class Archive(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    updated_at: datetime
    description: str | None
    embedding_config: EmbeddingConfig | None
    metadata: dict[str, Any]
    created_by_id: str | None
    last_updated_by_id: str | None
    organization_id: str
    # Not in V1.
    deduplicate: bool
    vector_db_provider: Literal["native"] = "native"
