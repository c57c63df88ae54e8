"""Passages to store, and to look for (memory-v1 §1)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.core.passages import PassageFilter
from holdfast.core.periods import first_moment, last_moment
from holdfast.http.letta_v1.from_wire.dates import as_utc
from holdfast.http.letta_v1.schemas.passages import (
    AgentPassageCreate,
    PassageItem,
    PassageSearchBody,
)
from holdfast.usecases.archive_search import ArchiveSearch
from holdfast.usecases.passages import NewPassage


def new_passage(body: PassageItem | AgentPassageCreate) -> NewPassage:
    metadata = body.metadata if isinstance(body, PassageItem) else None
    return NewPassage(
        text=body.text,
        tags=body.tags or (),
        metadata=metadata or {},
        created_at=as_utc(body.created_at),
    )


def passage_filter(
    archive_id: str, tags: Sequence[str], start: datetime | None, end: datetime | None
) -> PassageFilter:
    """Passages of an archive with one of the tags, between two dates. Dates without an offset are in UTC."""
    return PassageFilter(
        archive_ids=(archive_id,),
        tags=tuple(tags),
        since=first_moment(start, UTC),
        until=last_moment(end, UTC),
    )


def archive_search(body: PassageSearchBody) -> ArchiveSearch:
    return ArchiveSearch(
        query=body.query or "",
        limit=body.limit,
        tags=tuple(body.tags or ()),
        match_all_tags=body.tag_match_mode == "all",
        since=body.start_date,
        until=body.end_date,
    )
