"""The effect of RunTools: every open call gets exactly one result, all of them in one row."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.ids import DEFAULT_USER_ID, Kind
from holdfast.core.messages import CallState, OpenCall, Outcome, Text, ToolReturn
from holdfast.core.open_calls import results_row
from holdfast.core.runs import StopReason
from holdfast.core.tools import Tool, ToolKind
from holdfast.core.turn import PlannedCall, RunTools
from holdfast.engine.lease_check import check_lease
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State, with_calls, with_progress, with_rows
from holdfast.engine.store_writes import save_now, with_fence, write_until_stored
from holdfast.engine.tool_progress import ProgressReports
from holdfast.errors import StaleRun
from holdfast.ports.mcp import OnProgress
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import ToolContext

log = logging.getLogger(__name__)


async def run_tools(
    services: Services,
    state: State,
    command: RunTools,
    progress: EffectProgress,
    reports: ProgressReports,
) -> State:
    """The state with the results of all open calls."""
    started_ns = services.clock.monotonic_ns()
    is_complete = False
    try:
        results = await _ToolRun(services, state, progress, reports).run(command.planned)
        is_complete = True
    finally:
        if reports.has_begun:
            await reports.close(is_complete=is_complete)
    results |= {result.call_id: result for result in command.settled}
    return with_results(
        _with_used_by_tools(state, progress),
        results,
        planned=command.planned,
        stop=command.stop,
        spent_ns=services.clock.monotonic_ns() - started_ns,
        row_id=services.ids.new_id(Kind.MESSAGE),
        now=services.clock.now(),
    )


def start_order(
    tools: Sequence[Tool], calls: Sequence[PlannedCall]
) -> Sequence[Sequence[PlannedCall]]:
    """The calls in groups: each group starts when the one before has returned. Tools that allow it run in parallel,
    then the others one by one (wire-v1 §7.7)."""
    overlapping = {tool.name for tool in tools if tool.enable_parallel_execution}
    parallel = [item for item in calls if item.call.name in overlapping]
    single = [[item] for item in calls if item.call.name not in overlapping]
    return [parallel, *single] if parallel else single


class _ToolRun:
    """The execution of the planned calls of one answer."""

    def __init__(
        self,
        services: Services,
        state: State,
        progress: EffectProgress,
        reports: ProgressReports,
    ) -> None:
        self._services = services
        self._state = state
        self._progress = progress
        self._reports = reports
        self._tools = {tool.name: tool for tool in state.tools}

    async def run(self, calls: Sequence[PlannedCall]) -> dict[str, ToolReturn]:
        """The results by call."""
        groups = start_order(self._state.tools, calls)
        for number, group in enumerate(groups, 1):
            following = groups[number] if number < len(groups) else ()
            if len(group) == 1:
                await self._run_one(group[0], group, following)
            else:
                async with asyncio.TaskGroup() as tasks:
                    for item in group:
                        tasks.create_task(self._run_one(item, group, following))
            # A cancellation that came while a result was stored is raised here, before the next tool starts.
            await asyncio.sleep(0)
        return {item.call.id: self._progress.results[item.call.id] for item in calls}

    async def _run_one(
        self, planned: PlannedCall, group: Sequence[PlannedCall], following: Sequence[PlannedCall]
    ) -> None:
        """Run a call of the group. The last one that returns marks the calls of the following group as started."""
        progress, call = self._progress, planned.call
        # Nothing is awaited between this and the start of the tool: the process may be paused at any await.
        check_lease(self._services, self._state.run)
        tool = self._tools.get(call.name)
        if tool is None:
            progress.results[call.id] = _tool_not_found(planned)
        else:
            progress.started_calls.add(call.id)
            # A tool has its own time limit, and shows no progress before it returns.
            progress.record_progress(self._longest_call_seconds(group))
            context = _tool_context(self._state, progress, self._reports.listen(call))
            result = await self._services.toolbox.run(tool, planned, context)
            self._reports.stop_listening(call)
            progress.results[call.id] = result
            log.debug("tool.returned", extra={"tool": tool.name, "outcome": result.outcome})
        if len(self._state.turn.calls) > 1:
            is_last = all(item.call.id in progress.results for item in group)
            await self._save_result(progress.results[call.id], following if is_last else ())

    def _longest_call_seconds(self, group: Sequence[PlannedCall]) -> float:
        """How long the calls of the group may take, which run at the same time."""
        limits = self._services.limits
        mcp = any(
            (tool := self._tools.get(item.call.name)) is not None and tool.kind is ToolKind.MCP
            for item in group
        )
        seconds = limits.tool_timeout_seconds
        # A connection is opened twice if a login has expired.
        return (
            max(seconds, 2 * limits.mcp_connect_seconds + limits.mcp_call_seconds)
            if mcp
            else seconds
        )

    async def _save_result(self, result: ToolReturn, starting: Sequence[PlannedCall]) -> None:
        """Store one result while other calls of the same answer have none, so that a crash does not lose it. No tool
        starts before the store knows: that is how the next process can tell which calls never began."""
        services, run = self._services, self._state.run
        changed = {result.call_id: result} | dict.fromkeys(item.call.id for item in starting)

        def work(tx: Transaction) -> None:
            stored = {item.call.id: item for item in tx.calls.list_open(run.thread_id)}
            if not changed.keys() <= stored.keys():
                raise StaleRun(f"Run {run.id} no longer has the calls {[*changed]}.")
            calls = [_with_outcome(stored[call_id], changed[call_id]) for call_id in changed]
            tx.calls.put(run.thread_id, calls)

        if not starting:
            return await save_now(services, run, work, "saving a tool result")

        async def write() -> None:
            # Waiting for the store is no stall.
            self._progress.record_progress()
            await services.store.write(with_fence(run, work))

        return await write_until_stored(services, write, "saving a tool result")


def _with_outcome(item: OpenCall, result: ToolReturn | None) -> OpenCall:
    """The call with its result, or as one that begins now."""
    if result is None:
        return replace(item, state=CallState.STARTED)
    return replace(item, state=CallState.SETTLED, result=result)


def with_partial_results(state: State, progress: EffectProgress) -> State:
    """The state with the results that were there when the effect was interrupted."""
    calls = tuple(
        replace(item, state=CallState.SETTLED, result=progress.results[item.call.id])
        if item.call.id in progress.results
        else item
        for item in state.turn.calls
    )
    return with_calls(_with_used_by_tools(state, progress), calls)


def _with_used_by_tools(state: State, progress: EffectProgress) -> State:
    return replace(state, used_by_tools=state.used_by_tools | progress.used_by_tools)


def _tool_context(state: State, progress: EffectProgress, on_progress: OnProgress) -> ToolContext:
    return ToolContext(
        agent_id=state.agent.id,
        organization_id=state.agent.organization_id,
        thread_id=state.run.thread_id,
        run_id=state.run.id,
        step_id=state.turn.calls[0].step_id,
        environment=state.environment,
        on_tool_used=progress.used_by_tools.add,
        user_id=state.run.request.user_id or DEFAULT_USER_ID,
        on_progress=on_progress,
    )


def _tool_not_found(planned: PlannedCall) -> ToolReturn:
    return ToolReturn(
        call_id=planned.call.id,
        name=planned.call.name,
        outcome=Outcome.NOT_STARTED,
        content=(Text("Tool not found"),),
    )


def with_results(
    state: State,
    results: Mapping[str, ToolReturn],
    *,
    row_id: str,
    now: datetime,
    planned: Sequence[PlannedCall] = (),
    stop: StopReason | None = None,
    spent_ns: int = 0,
) -> State:
    """The state whose open calls have these results, in one row, followed by the messages that waited for them.
    ``planned`` are the calls that were run."""
    calls = state.turn.calls
    row = results_row(state.run, calls, [results[item.call.id] for item in calls], row_id, now)
    if planned:
        row = replace(row, name=planned[0].call.name)
    called = tuple(item.call.name for item in planned)
    state = with_progress(state, called=state.turn.progress.called + called)
    step = state.step
    if step is not None:
        total_ns = (step.llm_request_ns or 0) + spent_ns
        step = replace(step, tool_execution_ns=spent_ns, step_ns=total_ns)
    rows = (row, *state.follow_up)
    state = replace(
        state,
        turn=replace(state.turn, calls=(), stop=stop),
        step=step,
        has_output=True,
        calls_answered=True,
        follow_up=(),
    )
    return with_rows(state, *rows)
