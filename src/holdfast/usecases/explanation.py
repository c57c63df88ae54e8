"""Explaining a run: this module loads the facts in one transaction, ``core.explanation`` turns them into text."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.core.explanation import Explanation, Facts, Owner, explain
from holdfast.core.lifecycle import LIVE
from holdfast.core.messages import OpenCall, decisions_by_call
from holdfast.core.paging import Order, Page
from holdfast.core.prices import Costs
from holdfast.core.runs import Run, RunQuery, RunStatus
from holdfast.core.steps import Step, StepQuery
from holdfast.errors import NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# At most this many waiting runs are named.
_MAX_RUNS_AHEAD = 100
# The answering run usually comes right after the paused one; other runs may have been sent in between.
_MAX_LATER_RUNS = 20


class ExplainedRun(Struct, frozen=True):
    """A run with its explanation, its newest step, the costs of all its steps, and the server that has claimed it, if it
    has not ended."""

    run: Run
    explanation: Explanation
    step: Step | None
    costs: Costs
    owner: Owner | None


async def explain_run(services: Services, actor: Actor, run_id: str) -> ExplainedRun:
    def load(tx: Transaction) -> ExplainedRun:
        run = tx.runs.get(actor.organization_id, run_id)
        newest = StepQuery(page=Page(limit=1), run_id=run_id)
        step = next(iter(tx.steps.list(run.organization_id, newest)), None)
        costs = tx.steps.sum_costs(run.organization_id, newest)
        facts = _load_facts(tx, services, run)
        return ExplainedRun(run, explain(facts), step, costs, facts.owner)

    return await services.store.read(load)


def _load_facts(tx: Transaction, services: Services, run: Run) -> Facts:
    calls = tx.calls.list_open(run.thread_id) if _may_have_calls(run) else ()
    paused = run.status is RunStatus.PAUSED
    ahead = _list_runs_ahead(tx, run) if run.status is RunStatus.QUEUED else ()
    owner, alive_workers = _load_owner(tx, services, run) if run.status in LIVE else (None, 0)
    return Facts(
        run=run,
        now=services.clock.now(),
        owner=owner,
        alive_workers=alive_workers,
        runs_ahead=ahead[:_MAX_RUNS_AHEAD],
        has_more_ahead=len(ahead) > _MAX_RUNS_AHEAD,
        step=next(iter(tx.steps.list_pending(run.id)), None) if run.status in LIVE else None,
        calls=tuple(calls),
        calls_requested_at=_called_at(tx, run, calls),
        decisions=decisions_by_call(tx.messages.context(run.thread_id)) if paused else {},
        followed_by=_find_follower(tx, run) if run.status is RunStatus.ANSWERED else None,
        stall_seconds=services.limits.run_stall_seconds,
        tool_timeout_seconds=services.limits.tool_timeout_seconds,
    )


def _load_owner(tx: Transaction, services: Services, run: Run) -> tuple[Owner | None, int]:
    """The server that has claimed the run, and how many servers could execute it."""
    now, servers = tx.servers.now(), tx.servers.list()
    alive_workers = sum(server.is_alive(now) and server.executes_runs for server in servers)
    if run.owner_id is None:
        return None, alive_workers
    server = next((server for server in servers if server.id == run.owner_id), None)
    if server is None:
        # It died so long ago that it was deleted.
        return Owner(server_id=run.owner_id, lease_seconds=0.0), alive_workers
    ends_at = server.lease_ends_at
    owner = Owner(
        server_id=server.id,
        host=server.host,
        is_this=server.id == services.lease.server_id,
        lease_ends_at=ends_at,
        lease_seconds=None if ends_at is None else (ends_at - now).total_seconds(),
    )
    return owner, alive_workers


def _may_have_calls(run: Run) -> bool:
    holds = run.status in (RunStatus.RUNNING, RunStatus.CANCELLING, RunStatus.PAUSED)
    return holds or (run.failure is not None and run.failure.pending_request_id is not None)


def _list_runs_ahead(tx: Transaction, run: Run) -> tuple[str, ...]:
    """The live runs of the thread that come before this one: the running one first, then by time of creation. The
    list is at most one longer than what is named, which shows that there are more."""
    query = RunQuery(
        page=Page(limit=_MAX_RUNS_AHEAD + 1, order=Order.ASC),
        thread_id=run.thread_id,
        statuses=tuple(sorted(LIVE)),
        end_date=run.created_at,
    )
    before = [other for other in tx.runs.list(run.organization_id, query) if other.id != run.id]
    before.sort(key=lambda other: other.status is RunStatus.QUEUED)
    return tuple(other.id for other in before)


def _called_at(tx: Transaction, run: Run, calls: Sequence[OpenCall]) -> datetime | None:
    """When the model requested the calls."""
    if not calls:
        return None
    try:
        return tx.messages.get(run.organization_id, calls[0].message_id).created_at
    except NotFound:
        # The answer with these calls is stored only once its calls have ended.
        return None


def _find_follower(tx: Transaction, run: Run) -> str | None:
    """The run that answered this one's held calls."""
    query = RunQuery(
        page=Page(limit=_MAX_LATER_RUNS, order=Order.ASC, after=run.id), thread_id=run.thread_id
    )
    later = tx.runs.list(run.organization_id, query)
    return next((other.id for other in later if other.is_answer), None)
