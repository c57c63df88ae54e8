"""Looking at runs and cancelling them."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from holdfast.core.paging import Page
from holdfast.core.runs import RunQuery
from holdfast.http.mcp.caller import Answer, Caller, answer_with
from holdfast.http.mcp.run_reports import load_report, tell, wait_and_tell
from holdfast.http.mcp.summaries import RunSummary, run_summary
from holdfast.http.mcp.tools.agents import find_agent
from holdfast.http.mcp.tools.tool import READS, Arguments, Hints, WaitSeconds, make_tool
from holdfast.usecases import runs

MAX_RUNS: Final = 100

RunId = Annotated[str, Meta(min_length=1, description="The id of the run.")]


class ListRuns(Arguments, frozen=True, kw_only=True):
    agent: Annotated[
        str, Meta(description="The id or name of an agent. Empty: runs of all agents.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_RUNS)] = 20
    after: Annotated[str, Meta(description="The id in 'next' of the page before.")] = ""


class GetRun(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    wait_seconds: WaitSeconds = 0.0


class CancelRun(Arguments, frozen=True, kw_only=True):
    run_id: RunId
    reason: Annotated[str, Meta(max_length=1_000, description="Why; it is stored.")] = ""


class RunList(Struct, frozen=True, omit_defaults=True):
    runs: list[RunSummary]
    # The page after this one begins after this run. None: there is no other page.
    next: str | None = None


async def list_runs(caller: Caller, wanted: ListRuns) -> Answer:
    agent_ids = ((await find_agent(caller, wanted.agent)).id,) if wanted.agent else ()
    page = Page(limit=wanted.limit + 1, after=wanted.after or None)
    query = RunQuery(page=page, agent_ids=agent_ids)
    found = await runs.list_runs(caller.services, caller.actor, query)
    shown = [run_summary(run) for run in found[: wanted.limit]]
    return answer_with(RunList(shown, shown[-1].id if len(found) > wanted.limit else None))


async def get_run(caller: Caller, wanted: GetRun) -> Answer:
    if wanted.wait_seconds:
        run = await runs.retrieve(caller.services, caller.actor, wanted.run_id)
        return await wait_and_tell(caller, run, wanted.wait_seconds)
    return tell(await load_report(caller, wanted.run_id))


async def cancel_run(caller: Caller, wanted: CancelRun) -> Answer:
    run = await runs.cancel(
        caller.services,
        caller.actor,
        wanted.run_id,
        reason=wanted.reason or None,
        may_deny=not caller.is_agent,
    )
    report = await load_report(caller, run.id)
    return Answer(text=f"The run {run.id}: {report.summary}", run_id=run.id)


LIST_RUNS: Final = make_tool(
    list_runs,
    ListRuns,
    title="List runs",
    description=(
        "The runs of all agents or of one, the newest first: what the server did, or does, to answer each message. "
        "A status of 'paused' means that the run waits for a person's approval."
    ),
    hints=READS,
)
GET_RUN: Final = make_tool(
    get_run,
    GetRun,
    title="Look at a run",
    description="The agent's answer in a run that has ended; else what it is doing or what it waits for.",
    hints=READS,
)
CANCEL_RUN: Final = make_tool(
    cancel_run,
    CancelRun,
    title="Cancel a run",
    description=(
        "Stop a run that has not ended: its model call or tool is interrupted, calls that wait for an approval are "
        "denied, and what it did so far is kept. A run that has ended stays as it is."
    ),
    hints=Hints(destroys=True, may_repeat=True),
)
