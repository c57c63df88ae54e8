"""Searching passages: by words, and by what they mean where there are vectors."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.core.paging import Page
from holdfast.core.passages import FoundPassage, PassageFilter
from holdfast.core.search import Match
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases.query_vectors import describe_waiting, embed_query


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
    organization_id = actor.organization_id
    if not query.strip():
        return await _list_newest(services, actor, where, limit)
    models = await services.store.read(
        lambda tx: tx.passages.embedding_models(organization_id, where)
    )
    # Before the second transaction: none may wait for a provider.
    embedded = await embed_query(services, query, models)

    def work(tx: Transaction) -> PassageSearch:
        found = tx.passages.search(organization_id, where, query, limit, embedded.vectors)
        waiting = [
            (tx.passage_vectors.count_waiting(item.model, models[item.model]), item.model)
            for item in embedded.vectors
        ]
        missing = [describe_waiting(count, model) for count, model in waiting if count]
        return PassageSearch(
            found=found,
            mode="hybrid" if embedded.vectors else "fts",
            unused=(*embedded.unused, *missing),
        )

    return await services.store.read(work)


async def _list_newest(
    services: Services, actor: Actor, where: PassageFilter, limit: int
) -> PassageSearch:
    newest = await services.store.read(
        lambda tx: tx.passages.list(actor.organization_id, where, Page(limit=limit))
    )
    found = [FoundPassage(passage, Match(passage.position, 0.0)) for passage in newest]
    return PassageSearch(found=found, mode="timestamp")
