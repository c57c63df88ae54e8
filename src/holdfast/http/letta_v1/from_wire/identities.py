"""Identities to create and to change (tools-v1 §2.2)."""

from collections.abc import Sequence
from typing import Any

from holdfast.core.identities import IdentityProperty
from holdfast.http.letta_v1.schemas.identities import (
    IdentityCreate,
    IdentityPropertyInput,
    IdentityUpdate,
)
from holdfast.usecases.identities import IdentityChanges, NewIdentity


def new_identity(body: IdentityCreate) -> NewIdentity:
    return NewIdentity(**_convert_fields(body))


def identity_changes(body: IdentityUpdate) -> IdentityChanges:
    return IdentityChanges(**_convert_fields(body))


def identity_properties(given: Sequence[IdentityPropertyInput]) -> tuple[IdentityProperty, ...]:
    return tuple(IdentityProperty(key=item.key, value=item.value, type=item.type) for item in given)


def _convert_fields(body: IdentityCreate | IdentityUpdate) -> dict[str, Any]:
    """The fields that have values, by their names in the use case."""
    given = {
        name: value
        for name in type(body).model_fields
        if (value := getattr(body, name)) is not None
    }
    given |= {
        name: tuple(dict.fromkeys(given[name]))
        for name in ("agent_ids", "block_ids")
        if name in given
    }
    if body.properties is not None:
        given["properties"] = identity_properties(body.properties)
    return given
