"""The requests for approval that wait, and deciding them."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from holdfast.core.approvals import ApprovalQuery
from holdfast.core.ids import Kind, is_id
from holdfast.core.messages import Decision
from holdfast.core.paging import Order, Page
from holdfast.errors import Conflict, InvalidArgument
from holdfast.http.mcp.caller import Answer, Caller, answer_with
from holdfast.http.mcp.run_reports import summarize_request, wait_and_tell
from holdfast.http.mcp.summaries import ApprovalSummary, approval_summary
from holdfast.http.mcp.tools.agents import find_agent
from holdfast.http.mcp.tools.tool import (
    DEFAULT_WAIT_SECONDS,
    READS,
    Arguments,
    Hints,
    WaitSeconds,
    make_tool,
)
from holdfast.usecases import approvals, runs
from holdfast.usecases.approvals import ApprovalRequest, Inbox

MAX_APPROVALS: Final = 100

_NOT_FOR_AGENTS: Final = "An agent cannot decide about approvals: they are for a person."


class ListApprovals(Arguments, frozen=True, kw_only=True):
    agent: Annotated[
        str, Meta(description="The id or name of an agent. Empty: those of all agents.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_APPROVALS)] = 20


class DecideApproval(Arguments, frozen=True, kw_only=True):
    approval_id: Annotated[
        str, Meta(min_length=1, description="The id of the request, or of the run that waits.")
    ]
    approve: Annotated[bool, Meta(description="true: the calls are made. false: they are denied.")]
    reason: Annotated[
        str, Meta(max_length=10_000, description="Why; the agent reads it if the call is denied.")
    ] = ""
    calls: Annotated[
        tuple[str, ...],
        Meta(description="The ids of the calls that this decides. Empty: all that are undecided."),
    ] = ()
    wait_seconds: WaitSeconds = DEFAULT_WAIT_SECONDS


class ApprovalList(Struct, frozen=True):
    approvals: list[ApprovalSummary]
    # Of all that wait, also those that are not shown.
    count: int


async def list_approvals(caller: Caller, wanted: ListApprovals) -> Answer:
    agent_id = (await find_agent(caller, wanted.agent)).id if wanted.agent else None
    return answer_with(await load_list(caller, agent_id, wanted.limit))


async def load_list(caller: Caller, agent_id: str | None, limit: int) -> ApprovalList:
    """Those that have waited longest."""
    query = ApprovalQuery(page=Page(limit=limit, order=Order.ASC), agent_id=agent_id)
    inbox = await approvals.load_inbox(caller.services, caller.actor, query)
    return ApprovalList(_summarize(inbox), inbox.count)


def _summarize(inbox: Inbox) -> list[ApprovalSummary]:
    return [
        approval_summary(
            row,
            run_id=inbox.runs[row.thread_id],
            decisions=inbox.decisions[row.id],
            deadlines=inbox.deadlines.get(row.thread_id, {}),
        )
        for row in inbox.requests
    ]


async def decide_approval(caller: Caller, wanted: DecideApproval) -> Answer:
    if caller.is_agent:
        raise InvalidArgument(_NOT_FOR_AGENTS)
    request = await _find_request(caller, wanted.approval_id)
    undecided = request.undecided_ids
    if request.run is not None:
        _refuse_results(request, wanted)
    decisions = [
        Decision(call_id, wanted.approve, wanted.reason or None)
        for call_id in wanted.calls or undecided
    ]
    run = await approvals.decide(
        caller.services, caller.actor, request, decisions, partial=bool(wanted.calls)
    )
    return await wait_and_tell(caller, run, wanted.wait_seconds)


async def _find_request(caller: Caller, reference: str) -> ApprovalRequest:
    services, actor = caller.services, caller.actor
    if not is_id(Kind.RUN, reference):
        return await approvals.retrieve(services, actor, reference)
    run = await runs.retrieve(services, actor, reference)
    if run.approval_id is None:
        raise Conflict(f"The run {run.id} waits for no approval.")
    return await approvals.retrieve(services, actor, run.approval_id)


def _refuse_results(request: ApprovalRequest, wanted: DecideApproval) -> None:
    """A call of a client's own tool needs a result, which only that client has."""
    chosen = wanted.calls or request.undecided_ids
    own = [
        f"{call.tool} ({call.id})"
        for call in summarize_request(request).calls
        if call.needs_result and call.id in chosen
    ]
    if own and wanted.approve:
        raise InvalidArgument(
            f"The client that offered these tools must send their results by the API: {', '.join(own)}. Here they can "
            "only be denied."
        )


LIST_APPROVALS: Final = make_tool(
    list_approvals,
    ListApprovals,
    title="List pending approvals",
    description="The tool calls of agents that wait for a person's approval, those that have waited longest first.",
    hints=READS,
)
DECIDE_APPROVAL: Final = make_tool(
    decide_approval,
    DecideApproval,
    title="Decide an approval",
    description=(
        "Approve or deny tool calls of an agent that wait for a person, and return the agent's answer. This is the "
        "decision of the person whom you help: ask before you decide. The work goes on in a new run, for which the "
        "same holds as for send_message."
    ),
    hints=Hints(destroys=True, is_open=True),
)
