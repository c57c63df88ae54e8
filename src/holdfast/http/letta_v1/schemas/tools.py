"""Tools (wire-v1 §2.5, §3.4)."""

from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from holdfast.core.tools import MAX_RETURN_CHARS
from holdfast.http.letta_v1.schemas.limits import (
    MAX_REQUIREMENTS,
    MAX_SECRETS,
    JsonObject,
    Names,
    Tags,
)
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS

SourceType = Literal["python", "typescript", "json"]
# Of the text to search for.
MAX_QUERY_CHARS = 10_000
ReturnCharLimit = Annotated[int, Field(ge=1, le=MAX_RETURN_CHARS)]


class Requirement(BaseModel):
    """A package that the tool's source needs."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    version: str | None = Field(None, max_length=MAX_NAME_CHARS)


Requirements = Annotated[list[Requirement], Field(max_length=MAX_REQUIREMENTS)]


class ToolFields(BaseModel):
    """The fields that create and update share. A field that is absent or null leaves a stored value unchanged."""

    source_type: SourceType | None = None
    json_schema: JsonObject | None = Field(
        None, description="{name, description, parameters}; derived from the source if not given."
    )
    args_json_schema: JsonObject | None = Field(
        None, description="The parameters alone; name and description come from the source."
    )
    description: str | None = None
    tags: Tags | None = None
    return_char_limit: ReturnCharLimit | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None
    pip_requirements: Requirements | None = None
    npm_requirements: Requirements | None = None


class ToolCreate(ToolFields):
    # Unknown fields are refused (wire-v1 §1.7).
    model_config = ConfigDict(extra="forbid")

    source_code: str = Field(description="Python; the last function at the top level is the tool.")


class ToolUpdate(ToolFields):
    model_config = ConfigDict(extra="ignore")

    source_code: str | None = None
    metadata_: JsonObject | None = None


class ToolRun(BaseModel):
    model_config = ConfigDict(extra="ignore")

    source_code: str
    args: JsonObject
    env_vars: Annotated[dict[str, str], Field(max_length=MAX_SECRETS)] | None = None
    name: str | None = None
    source_type: SourceType | None = None
    json_schema: JsonObject | None = None
    args_json_schema: JsonObject | None = None
    pip_requirements: Requirements | None = None
    npm_requirements: Requirements | None = None


class ToolSearch(BaseModel):
    model_config = ConfigDict(extra="ignore")

    query: str | None = Field(None, max_length=MAX_QUERY_CHARS)
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    tool_types: Names | None = None
    tags: Names | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class Tool(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    tool_type: str
    source_type: str
    source_code: str | None
    json_schema: dict[str, Any]
    args_json_schema: JsonObject | None
    return_char_limit: int
    default_requires_approval: bool | None
    enable_parallel_execution: bool
    pip_requirements: list[dict[str, Any]] | None
    npm_requirements: list[dict[str, Any]] | None
    tags: tuple[str, ...]
    metadata_: dict[str, Any]
    project_id: str | None
    created_by_id: str | None
    last_updated_by_id: str | None


class ToolSearchResult(Struct, frozen=True, kw_only=True):
    tool: Tool
    embedded_text: str
    fts_rank: int | None
    vector_rank: int | None
    combined_score: float
