"""Searching what an agent remembers: the passages of its archives, and what was said."""

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from holdfast.core.message_search import (
    FoundMessage,
    MessageFilter,
    SearchMode,
    searchable_text,
)
from holdfast.core.messages import conversation_id
from holdfast.core.passages import FoundPassage
from holdfast.http.mcp.caller import Answer, Caller, answer_with
from holdfast.http.mcp.summaries import cut
from holdfast.http.mcp.tools.agents import AgentReference, find_agent
from holdfast.http.mcp.tools.tool import READS, Arguments, make_tool
from holdfast.usecases import message_search
from holdfast.usecases.archive_search import ArchiveSearch, search_agent

MAX_FOUND: Final = 50


class SearchMemory(Arguments, frozen=True, kw_only=True):
    agent: AgentReference
    query: Annotated[str, Meta(min_length=1, description="Words to search for.")]
    limit: Annotated[
        int, Meta(ge=1, le=MAX_FOUND, description="Of passages and of messages each.")
    ] = 10


class PassageSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    text: str
    tags: tuple[str, ...] = ()
    created_at: datetime


class MessageSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    role: str
    text: str
    conversation_id: str | None = None
    created_at: datetime


class Memories(Struct, frozen=True, kw_only=True, omit_defaults=True):
    # The best matches first.
    passages: list[PassageSummary]
    messages: list[MessageSummary]
    # Which parts of the search could not be used.
    warnings: list[str] = []


async def search_memory(caller: Caller, wanted: SearchMemory) -> Answer:
    services, actor = caller.services, caller.actor
    agent = await find_agent(caller, wanted.agent)
    archived = await search_agent(
        services, actor, agent.id, ArchiveSearch(query=wanted.query, limit=wanted.limit)
    )
    said = await message_search.search(
        services,
        actor,
        MessageFilter(agent_id=agent.id),
        wanted.query,
        mode=SearchMode.HYBRID,
        limit=wanted.limit,
    )
    return answer_with(
        Memories(
            passages=[_summarize_passage(item) for item in archived.result.found],
            messages=[_summarize_message(item) for item in said.found],
            warnings=list(dict.fromkeys((*archived.result.unused, *said.unused))),
        )
    )


def _summarize_passage(item: FoundPassage) -> PassageSummary:
    passage = item.passage
    return PassageSummary(
        id=passage.id, text=cut(passage.text), tags=passage.tags, created_at=passage.created_at
    )


def _summarize_message(item: FoundMessage) -> MessageSummary:
    row = item.message
    return MessageSummary(
        id=row.id,
        role=row.role.value,
        text=cut(searchable_text(row)),
        conversation_id=conversation_id(row.thread_id, row.agent_id),
        created_at=row.created_at,
    )


SEARCH_MEMORY: Final = make_tool(
    search_memory,
    SearchMemory,
    title="Search an agent's memory",
    description=(
        "Search what an agent has stored in its archives (passages) and what was said in its conversations (messages), "
        "by words, and by meaning where the server has an embedding model. The best matches come first. Long texts are "
        "cut."
    ),
    hints=READS,
)
