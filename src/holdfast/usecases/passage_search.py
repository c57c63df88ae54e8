"""Searching passages: by words, and by what they mean where there are vectors."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.core.paging import Page
from holdfast.core.passages import FoundPassage, PassageFilter
from holdfast.core.search import Match
from holdfast.ports.services import Services


class PassageSearch(Struct, frozen=True, kw_only=True):
    """What was found, best first, and how. ``mode``: ``fts`` (words), ``vector``, ``hybrid`` (both), or ``timestamp`` (no
    query: the newest first). ``unused``: a sentence for each part of the search that could not be used."""

    found: Sequence[FoundPassage]
    mode: str
    unused: tuple[str, ...] = ()


async def search(
    services: Services, actor: Actor, where: PassageFilter, query: str, limit: int
) -> PassageSearch:
    """Search passages. With a blank query the newest ones that match, with a score of 0."""
    if not query.strip():
        return await _list_newest(services, actor, where, limit)
    found = await services.store.read(
        lambda tx: tx.passages.search(actor.organization_id, where, query, limit)
    )
    return PassageSearch(found=found, mode="fts")


async def _list_newest(
    services: Services, actor: Actor, where: PassageFilter, limit: int
) -> PassageSearch:
    newest = await services.store.read(
        lambda tx: tx.passages.list(actor.organization_id, where, Page(limit=limit))
    )
    found = [FoundPassage(passage, Match(passage.position, 0.0)) for passage in newest]
    return PassageSearch(found=found, mode="timestamp")
