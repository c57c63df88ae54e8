"""Memory blocks on the wire (wire-v1 §2.6, §3.3)."""

from typing import Annotated, Any, ClassVar

from msgspec import Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from holdfast.core.blocks import (
    DEFAULT_BLOCK_LIMIT,
    LABEL_PATTERN,
    MAX_LABEL_CHARS,
    MAX_VALUE_CHARS,
)
from holdfast.http.letta_v1.schemas.limits import JsonObject, Tags

# V1 has these too. They have no effect here, and are no misspellings of other fields.
_IGNORED_FIELDS = frozenset({"template_id", "base_template_id"})

# What a PostgreSQL integer holds.
_MAX_INTEGER = 2**31 - 1

Label = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=MAX_LABEL_CHARS)]
# The system message shows it beside the value.
Description = Annotated[str, Field(max_length=MAX_VALUE_CHARS)]
CharLimit = Annotated[int, Field(ge=0, le=_MAX_INTEGER, description="Characters.")]


def _null_to_empty(value: object) -> object:
    """A new block with a null value is empty (wire-v1 §2.6)."""
    return "" if value is None else value


class BlockCreate(BaseModel):
    model_config = ConfigDict(extra="ignore")
    ignored_fields: ClassVar = _IGNORED_FIELDS

    label: Label
    value: Annotated[str, BeforeValidator(_null_to_empty, json_schema_input_type=str | None)]
    limit: CharLimit = DEFAULT_BLOCK_LIMIT
    description: Description | None = None
    read_only: bool = False
    metadata: JsonObject | None = None
    tags: Tags | None = None
    is_template: bool = False
    template_name: str | None = None
    hidden: bool | None = None
    project_id: str | None = None


class BlockUpdate(BaseModel):
    """Null clears the fields that may be empty, and is ignored in all others."""

    model_config = ConfigDict(extra="ignore")
    ignored_fields: ClassVar = _IGNORED_FIELDS

    label: Label | None = None
    value: str | None = None
    limit: CharLimit | None = None
    description: Description | None = None
    read_only: bool | None = None
    metadata: JsonObject | None = None
    tags: Tags | None = None
    is_template: bool | None = None
    template_name: str | None = None
    hidden: bool | None = None
    project_id: str | None = None


class BlockResponse(Struct, frozen=True, kw_only=True):
    id: str
    label: str
    value: str
    limit: int
    description: str | None
    read_only: bool
    metadata: dict[str, Any]
    tags: tuple[str, ...]
    is_template: bool
    template_name: str | None
    hidden: bool | None
    project_id: str | None
    created_by_id: str | None
    last_updated_by_id: str | None
    # Only of use in the V1 cloud: always empty.
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = None
