"""What comes along with an agent (wire-v1 §2.2)."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field

from holdfast.http.letta_v1.from_wire.agents import included_relations
from holdfast.http.letta_v1.schemas.agents import Include
from holdfast.http.letta_v1.schemas.limits import MAX_NAMES, Names
from holdfast.usecases.agent_views import Relation


async def _get_relations(
    include: Annotated[
        Annotated[list[Include], Field(max_length=MAX_NAMES)] | None,
        Query(description="What comes along; nothing if not given."),
    ] = None,
    include_relationships: Annotated[
        Names | None, Query(deprecated=True, description="Old form of include.")
    ] = None,
) -> frozenset[Relation]:
    return included_relations(include, include_relationships)


RelationsDep = Annotated[frozenset[Relation], Depends(_get_relations)]
