"""Listing agents, and finding the one that a caller means."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from holdfast.core.agents import Agent, AgentQuery
from holdfast.core.ids import Kind, is_id
from holdfast.core.paging import Page
from holdfast.errors import InvalidArgument, NotFound
from holdfast.http.mcp.caller import Answer, Caller, answer_with
from holdfast.http.mcp.summaries import AgentSummary, agent_summary
from holdfast.http.mcp.tools.tool import READS, Arguments, make_tool
from holdfast.usecases import agents

MAX_AGENTS: Final = 100
# Of those with the same name, so many are named.
_MAX_NAMESAKES: Final = 10

AgentReference = Annotated[
    str, Meta(min_length=1, description="The id of an agent, or its name if no other has it.")
]


class ListAgents(Arguments, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="A part of the name. Empty: all agents.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_AGENTS)] = 20
    after: Annotated[str, Meta(description="The id in 'next' of the page before.")] = ""


class AgentList(Struct, frozen=True, omit_defaults=True):
    agents: list[AgentSummary]
    # The page after this one begins after this agent. None: there is no other page.
    next: str | None = None


async def list_agents(caller: Caller, wanted: ListAgents) -> Answer:
    # One more than is shown tells whether there are more.
    page = Page(limit=wanted.limit + 1, after=wanted.after or None)
    query = AgentQuery(page=page, query_text=wanted.query or None)
    found = await agents.list_page(caller.services, caller.actor, query)
    shown = [agent_summary(view.agent) for view in found[: wanted.limit]]
    return answer_with(AgentList(shown, shown[-1].id if len(found) > wanted.limit else None))


async def find_agent(caller: Caller, reference: str) -> Agent:
    """The agent with this id or name. NotFound if there is none, InvalidArgument if several have the name."""
    if is_id(Kind.AGENT, reference):
        return (await agents.retrieve(caller.services, caller.actor, reference, ())).agent
    query = AgentQuery(page=Page(limit=_MAX_NAMESAKES + 1), name=reference)
    found = await agents.list_page(caller.services, caller.actor, query)
    match found:
        case [only]:
            return only.agent
        case []:
            raise NotFound(
                f"There is no agent with the id or name '{reference}'. Call list_agents to see them."
            )
        case _:
            ids = ", ".join(view.agent.id for view in found[:_MAX_NAMESAKES])
            more = ", and more" if len(found) > _MAX_NAMESAKES else ""
            raise InvalidArgument(
                f"Several agents have the name '{reference}': {ids}{more}. Give the id of one of them."
            )


LIST_AGENTS: Final = make_tool(
    list_agents,
    ListAgents,
    title="List agents",
    description="The agents of this Holdfast server, the newest first: their ids, names and descriptions.",
    hints=READS,
)
