"""Identities on the wire (tools-v1 §2.1)."""

from typing import Annotated

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from holdfast.core.identities import (
    MAX_PROPERTIES,
    IdentityProperty,
    IdentityType,
    PropertyType,
)
from holdfast.http.letta_v1.schemas.limits import JsonObject, Names
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS, ScopeId

IdentifierKey = Annotated[
    str, Field(max_length=MAX_NAME_CHARS, description="The caller's own key, unique in a project.")
]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]


class _Strict(BaseModel):
    # Unknown fields are refused (tools-v1 §2).
    model_config = ConfigDict(extra="forbid")


class IdentityPropertyInput(_Strict):
    key: Name
    value: str | int | float | bool | JsonObject
    type: Annotated[PropertyType, Field(description="Not compared with the value.")]


Properties = Annotated[list[IdentityPropertyInput], Field(max_length=MAX_PROPERTIES)]


class IdentityCreate(_Strict):
    """An upsert too: null leaves what the identity has."""

    identifier_key: IdentifierKey
    name: Name
    identity_type: IdentityType
    project_id: ScopeId | None = None
    agent_ids: Names | None = None
    block_ids: Names | None = None
    properties: Properties | None = None


class IdentityUpdate(_Strict):
    """Null leaves a field unchanged."""

    identifier_key: IdentifierKey | None = None
    name: Name | None = None
    identity_type: IdentityType | None = None
    agent_ids: Names | None = None
    block_ids: Names | None = None
    properties: Properties | None = None


class Identity(Struct, frozen=True, kw_only=True):
    id: str
    identifier_key: str
    name: str
    identity_type: IdentityType
    project_id: str | None
    agent_ids: tuple[str, ...]
    block_ids: tuple[str, ...]
    organization_id: str
    properties: tuple[IdentityProperty, ...]
