"""What clients can read: agents, runs and approvals, as JSON. Only the newest are listed; all can be read by their id."""

import json
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.core.agents import AgentQuery
from holdfast.core.paging import Page
from holdfast.core.runs import RunQuery
from holdfast.errors import NotFound
from holdfast.http.mcp.caller import Caller
from holdfast.http.mcp.run_reports import load_report, summarize_request
from holdfast.http.mcp.summaries import agent_summary
from holdfast.http.mcp.tools.approvals import MAX_APPROVALS, load_list
from holdfast.usecases import agents, approvals, runs

MEDIA_TYPE: Final = "application/json"
# Of each kind.
MAX_LISTED: Final = 20

_SCHEME: Final = "holdfast://"
_APPROVALS: Final = f"{_SCHEME}approvals"


class ListedResource(Struct, frozen=True, kw_only=True):
    uri: str
    name: str
    description: str


class ResourceKind(Struct, frozen=True, kw_only=True):
    """Resources that differ only in an id, which ends their address."""

    prefix: str
    id_name: str
    title: str
    description: str
    load: Callable[[Caller, str], Awaitable[Struct]]

    @property
    def template(self) -> str:
        return f"{self.prefix}{{{self.id_name}}}"


async def _load_agent(caller: Caller, agent_id: str) -> Struct:
    view = await agents.retrieve(caller.services, caller.actor, agent_id, ())
    return agent_summary(view.agent)


async def _load_approval(caller: Caller, approval_id: str) -> Struct:
    return summarize_request(await approvals.retrieve(caller.services, caller.actor, approval_id))


_AGENT: Final = ResourceKind(
    prefix=f"{_SCHEME}agents/",
    id_name="agent_id",
    title="An agent",
    description="The agent's name and description.",
    load=_load_agent,
)
_RUN: Final = ResourceKind(
    prefix=f"{_SCHEME}runs/",
    id_name="run_id",
    title="A run",
    description="The run's status, what it is doing or how it ended in words, and the agent's answer.",
    load=load_report,
)
_APPROVAL: Final = ResourceKind(
    prefix=f"{_APPROVALS}/",
    id_name="approval_id",
    title="A request for approval",
    description="The tool calls that wait for a decision, and those that were decided.",
    load=_load_approval,
)
KINDS: Final = (_AGENT, _RUN, _APPROVAL)


async def list_resources(caller: Caller) -> list[ListedResource]:
    """The pending approvals in one, then the newest of each kind."""
    services, actor = caller.services, caller.actor
    page = Page(limit=MAX_LISTED)
    waiting = await load_list(caller, None, MAX_LISTED)
    newest = await runs.list_runs(services, actor, RunQuery(page=page))
    known = await agents.list_page(services, actor, AgentQuery(page=page))
    inbox = ListedResource(
        uri=_APPROVALS,
        name="Pending approvals",
        description=f"Tool calls that wait for a person's decision; now {waiting.count} requests.",
    )
    return [
        inbox,
        *(_list_one(_APPROVAL, item.id, f"of {item.agent_id}") for item in waiting.approvals),
        *(_list_one(_RUN, run.id, f"of {run.agent_id}: {run.status}") for run in newest),
        *(_list_one(_AGENT, view.agent.id, view.agent.name) for view in known),
    ]


def _list_one(kind: ResourceKind, item_id: str, about: str) -> ListedResource:
    return ListedResource(
        uri=f"{kind.prefix}{item_id}", name=item_id, description=f"{kind.title}, {about}"
    )


async def read_resource(caller: Caller, uri: str) -> str:
    """The resource as JSON. NotFound if there is none with this address."""
    if uri == _APPROVALS:
        return _encode(await load_list(caller, None, MAX_APPROVALS))
    for kind in KINDS:
        if uri.startswith(kind.prefix):
            return _encode(await kind.load(caller, uri.removeprefix(kind.prefix)))
    templates = ", ".join(kind.template for kind in KINDS)
    raise NotFound(f"There is no resource {uri}. There are {_APPROVALS}, {templates}.")


def _encode(value: Struct) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=1)
