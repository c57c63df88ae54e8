"""Identities: the people and organisations that a caller's agents and blocks belong to (tools-v1 §2).

An identity is a name for them and no more: nothing about it is shown to a model.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from holdfast.core.paging import Page

# Of one identity, those that were added one after the other included.
MAX_PROPERTIES: Final = 1_000
# All of them together, as JSON.
MAX_PROPERTIES_BYTES: Final = 1_000_000


class IdentityType(StrEnum):
    ORG = "org"
    USER = "user"
    OTHER = "other"


class PropertyType(StrEnum):
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


class IdentityProperty(Struct, frozen=True, kw_only=True):
    """``type`` is what the caller says, and need not be the type of the value."""

    key: str
    value: str | int | float | bool | dict[str, Any]
    type: PropertyType


class Identity(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    # What the caller calls it: unique in its project.
    identifier_key: str
    name: str
    identity_type: IdentityType
    created_at: datetime
    updated_at: datetime
    project_id: str | None = None
    properties: tuple[IdentityProperty, ...] = ()
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class IdentityQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of identities. Conditions combine with AND; None means any."""

    page: Page
    name_contains: str | None = None
    identifier_key: str | None = None
    identity_type: IdentityType | None = None
    project_id: str | None = None


def merge_properties(
    stored: Sequence[IdentityProperty], given: Sequence[IdentityProperty]
) -> tuple[IdentityProperty, ...]:
    """One property for each key, the last one given. Those that are stored keep their places, new ones follow."""
    merged = {item.key: item for item in (*stored, *given)}
    return tuple(merged.values())
