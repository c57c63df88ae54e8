"""Tags (wire-v1 §2.11)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.paging import Order, Page
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.usecases import tags

router = APIRouter(prefix="/v1/tags", tags=["tags"])


@router.get("/", responses=describe_response(list[str]))
async def list_tags(
    page: Annotated[Page, Depends(paging(None, limit=50, order=Order.ASC, order_by=("name",)))],
    services: ServicesDep,
    actor: ActorDep,
    name: Annotated[str | None, Query(description="The whole tag.")] = None,
    query_text: Annotated[str | None, Query(description="A part of the tag.")] = None,
) -> Response:
    """The tags of all agents and blocks; a tag is its own cursor."""
    return json_response(await tags.list_page(services, actor, page, name=name, text=query_text))
