"""Filters of lists by identity (tools-v1 §2.3)."""

from typing import Annotated

from fastapi import Query

from holdfast.core.ids import Kind, id_pattern
from holdfast.http.letta_v1.schemas.limits import Names

# A malformed id finds nothing.
AnyIdentityFilter = Annotated[str | None, Query(description="What this identity is attached to.")]
IdentityFilter = Annotated[
    str | None,
    Query(pattern=id_pattern(Kind.IDENTITY), description="What this identity is attached to."),
]
IdentifierKeys = Annotated[
    Names | None,
    Query(description="What an identity with any of these keys is attached to."),
]
