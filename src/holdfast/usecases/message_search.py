"""Searching what was said: by words, and by what it means where there are vectors."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.message_search import FoundMessage, MessageFilter, SearchMode
from holdfast.errors import NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases.query_vectors import EmbeddedQuery, embed_query

_NO_VECTORS = "Messages have no vectors; they were searched by their words."


class MessageSearch(Struct, frozen=True, kw_only=True):
    """What was found, best first, and how. ``mode``: ``fts`` (words), ``vector``, ``hybrid`` (both), or ``timestamp`` (no
    query: the newest first). ``unused``: a sentence for each part of the search that could not be used."""

    found: Sequence[FoundMessage]
    mode: str
    unused: tuple[str, ...] = ()


async def search(
    services: Services,
    actor: Actor,
    where: MessageFilter,
    query: str,
    *,
    mode: SearchMode,
    limit: int,
) -> MessageSearch:
    """Search messages. With a blank query the newest ones that match, with a score of 0. NotFound if the agent or thread
    of the filter does not exist."""

    embedded = EmbeddedQuery(())
    if query.strip() and mode is not SearchMode.WORDS:
        embedded = await _embed(services, query, mode)
    vector = next(iter(embedded.vectors), None)
    # Without vectors words must do.
    by_words = vector is None or mode is not SearchMode.VECTOR

    def load(tx: Transaction) -> Sequence[FoundMessage]:
        scope = _resolve_scope(tx, actor, where)
        return tx.messages.search(
            actor.organization_id, scope, query, limit, vector, by_words=by_words
        )

    found = await services.store.read(load)
    if not query.strip():
        return MessageSearch(found=found, mode="timestamp")
    used = SearchMode.WORDS if vector is None else mode
    return MessageSearch(found=found, mode=used.value, unused=embedded.unused)


async def _embed(services: Services, query: str, mode: SearchMode) -> EmbeddedQuery:
    if services.message_embedding is not None:
        return await embed_query(services, query, [services.message_embedding])
    return EmbeddedQuery((), (_NO_VECTORS,) if mode is SearchMode.VECTOR else ())


def _resolve_scope(tx: Transaction, actor: Actor, where: MessageFilter) -> MessageFilter:
    """The filter with the agent of its thread."""
    if where.agent_id is not None:
        tx.agents.get(actor.organization_id, where.agent_id)
    if where.thread_id is None:
        return where
    thread = tx.threads.get(actor.organization_id, where.thread_id)
    if where.agent_id not in (None, thread.agent_id):
        raise NotFound(f"Conversation with ID {thread.id} not found")
    return replace(where, agent_id=thread.agent_id)
