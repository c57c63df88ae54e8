"""Which archives a search covers, and which dates it means. The search itself is in ``passage_search``."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.agents import Actor, Agent
from holdfast.core.passages import PassageFilter
from holdfast.core.periods import first_moment, last_moment
from holdfast.core.system_prompt import load_zone
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases.passage_search import PassageSearch, search
from holdfast.usecases.stored_passages import list_archive_ids


class ArchiveSearch(Struct, frozen=True, kw_only=True):
    """What a caller looks for. A date without an offset is in the timezone that the search says; as the end of the period
    a day without a time means all of this day."""

    query: str = ""
    limit: int
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    since: datetime | None = None
    until: datetime | None = None


class AgentSearch(Struct, frozen=True, kw_only=True):
    """The agent, whose timezone the answer needs, and what was found."""

    agent: Agent
    result: PassageSearch


async def search_agent(
    services: Services, actor: Actor, agent_id: str, wanted: ArchiveSearch
) -> AgentSearch:
    """Search all archives of the agent. Dates are in its timezone. With a blank query nothing is found."""

    def load(tx: Transaction) -> tuple[Agent, tuple[str, ...]]:
        agent = tx.agents.get(actor.organization_id, agent_id)
        return agent, list_archive_ids(tx, agent_id)

    agent, archive_ids = await services.store.read(load)
    if not wanted.query.strip():
        return AgentSearch(agent=agent, result=PassageSearch(found=(), mode="fts"))
    where = _build_filter(wanted, archive_ids, agent.timezone)
    result = await search(services, actor, where, wanted.query, wanted.limit)
    return AgentSearch(agent=agent, result=result)


async def search_archives(
    services: Services,
    actor: Actor,
    wanted: ArchiveSearch,
    *,
    agent_id: str | None = None,
    archive_id: str | None = None,
) -> PassageSearch:
    """Search the archives of the agent, else the archive, else all archives. Dates are in UTC."""

    def load(tx: Transaction) -> tuple[str, ...] | None:
        if agent_id is not None:
            tx.agents.get(actor.organization_id, agent_id)
            return list_archive_ids(tx, agent_id)
        if archive_id is not None:
            return (tx.archives.get(actor.organization_id, archive_id).id,)
        return None

    archive_ids = await services.store.read(load)
    where = _build_filter(wanted, archive_ids, "UTC")
    return await search(services, actor, where, wanted.query, wanted.limit)


def _build_filter(
    wanted: ArchiveSearch, archive_ids: tuple[str, ...] | None, timezone: str
) -> PassageFilter:
    zone = load_zone(timezone)
    return PassageFilter(
        archive_ids=archive_ids,
        tags=wanted.tags,
        match_all_tags=wanted.match_all_tags,
        since=first_moment(wanted.since, zone),
        until=last_moment(wanted.until, zone),
    )
