"""Passages of archives, and the search for them (memory-v1 §1). Those of an agent are in ``archival_memory``."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.core.passages import PassageFilter
from holdfast.errors import InvalidArgument
from holdfast.http.body_warnings import add_warnings
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import (
    describe_empty,
    describe_response,
    empty_response,
    json_response,
    list_response,
)
from holdfast.http.letta_v1.from_wire.passages import archive_search, new_passage, passage_filter
from holdfast.http.letta_v1.parameters.ids import ArchiveId, PassageId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.dates import OptionalDate
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.schemas.passages import (
    Passage,
    PassageBatch,
    PassageCreate,
    PassagesDeleted,
    PassageSearchBody,
    PassageSearchResult,
)
from holdfast.http.letta_v1.to_wire.passages import passage_state, search_result
from holdfast.usecases import archives, passages, stored_passages
from holdfast.usecases.archive_search import search_archives

router = APIRouter(
    prefix="/v1/archives/{archive_id}/passages", tags=["archives"], route_class=JsonRoute
)
search_router = APIRouter(prefix="/v1/passages", tags=["passages"], route_class=JsonRoute)


async def _passage_filter(
    archive_id: ArchiveId,
    tag: Annotated[Names | None, Query(description="Any of these tags.")] = None,
    start_date: Annotated[
        OptionalDate, Query(description="Created then or later; UTC if it has no offset.")
    ] = None,
    end_date: Annotated[
        OptionalDate,
        Query(description="Created then or earlier. A day without a time means all of this day."),
    ] = None,
) -> PassageFilter:
    return passage_filter(archive_id, tag or (), start_date, end_date)


FilterDep = Annotated[PassageFilter, Depends(_passage_filter)]


@router.post("", responses=describe_response(Passage))
async def create_passage(
    archive_id: ArchiveId, body: PassageCreate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Store a text. With ``deduplicate`` the passage that has the same text already is returned."""
    (stored,) = await passages.insert(
        services, actor, archive_id, [new_passage(body)], deduplicate=body.deduplicate
    )
    shown = await archives.find_by_passage(services, actor, [stored.passage])
    return json_response(passage_state(stored.passage, shown, stored.vector))


@router.post("/batch", responses=describe_response(list[Passage]))
async def create_passages(
    archive_id: ArchiveId, body: PassageBatch, services: ServicesDep, actor: ActorDep
) -> Response:
    """Store several texts, all or none. The answer has them in the same order."""
    items = [new_passage(item) for item in body.passages]
    inserted = await passages.insert(
        services, actor, archive_id, items, deduplicate=body.deduplicate
    )
    stored = [item.passage for item in inserted]
    shown = await archives.find_by_passage(services, actor, stored)
    return await list_response(stored, partial(passage_state, archives=shown))


@router.get("", responses=describe_response(list[Passage]))
async def list_passages(
    archive_id: ArchiveId,
    where: FilterDep,
    page: Annotated[Page, Depends(paging(Kind.PASSAGE, limit=50))],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    """Not in V1."""
    found = await stored_passages.list_page(services, actor, archive_id, where, page)
    shown = await archives.find_by_passage(services, actor, found)
    return await list_response(found, partial(passage_state, archives=shown))


@router.delete("", responses=describe_response(PassagesDeleted))
async def delete_passages(
    archive_id: ArchiveId, where: FilterDep, services: ServicesDep, actor: ActorDep
) -> Response:
    """Not in V1: delete all passages with one of the tags, or between two dates, or both."""
    if not where.tags and where.since is None and where.until is None:
        raise InvalidArgument(
            "Which passages are to be deleted? Name a tag, start_date or end_date. "
            "To delete all of them, delete the archive."
        )
    deleted = await stored_passages.delete_matching(services, actor, archive_id, where)
    return json_response(PassagesDeleted(deleted))


@router.get("/{passage_id}", responses=describe_response(Passage))
async def retrieve_passage(
    archive_id: ArchiveId, passage_id: PassageId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Not in V1."""
    passage = await stored_passages.retrieve(services, actor, archive_id, passage_id)
    shown = await archives.find_by_passage(services, actor, [passage])
    return json_response(passage_state(passage, shown))


@router.delete("/{passage_id}", status_code=204, responses=describe_empty())
async def delete_passage(
    archive_id: ArchiveId, passage_id: PassageId, services: ServicesDep, actor: ActorDep
) -> Response:
    await stored_passages.delete(services, actor, archive_id, passage_id)
    return empty_response()


@search_router.post("/search", responses=describe_response(list[PassageSearchResult]))
async def search_passages(
    body: PassageSearchBody, services: ServicesDep, actor: ActorDep
) -> Response:
    """The best matches first; without a query the newest. A header tells what could not be used for the search."""
    result = await search_archives(
        services,
        actor,
        archive_search(body),
        agent_id=body.agent_id,
        archive_id=body.archive_id,
    )
    shown = await archives.find_by_passage(services, actor, [item.passage for item in result.found])
    convert = partial(search_result, mode=result.mode, archives=shown)
    response = await list_response(result.found, convert)
    add_warnings(response, result.unused)
    return response
