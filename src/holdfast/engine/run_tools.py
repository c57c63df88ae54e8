"""The effect of RunTools: every open call gets exactly one result, all of them in one row."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.ids import Kind
from holdfast.core.messages import CallState, Outcome, Text, ToolReturn
from holdfast.core.open_calls import results_row
from holdfast.core.runs import StopReason
from holdfast.core.turn import PlannedCall, RunTools
from holdfast.engine.progress import EffectProgress
from holdfast.engine.save_now import save_now
from holdfast.engine.state import State, with_calls, with_progress, with_rows
from holdfast.ports.services import Services
from holdfast.ports.toolbox import ToolContext

log = logging.getLogger(__name__)


async def run_tools(
    services: Services, state: State, command: RunTools, progress: EffectProgress
) -> State:
    """The state with the results of all open calls."""
    started_ns = services.clock.monotonic_ns()
    results = await _run_planned(services, state, command.planned, progress)
    results |= {result.call_id: result for result in command.settled}
    return with_results(
        state,
        results,
        planned=command.planned,
        stop=command.stop,
        spent_ns=services.clock.monotonic_ns() - started_ns,
        row_id=services.ids.new_id(Kind.MESSAGE),
        now=services.clock.now(),
    )


async def _run_planned(
    services: Services, state: State, calls: Sequence[PlannedCall], progress: EffectProgress
) -> dict[str, ToolReturn]:
    """The results by call. Tools that allow it run in parallel, then the others one by one (wire-v1 §7.7)."""
    tools = {tool.name: tool for tool in state.tools}

    async def run(planned: PlannedCall) -> ToolReturn:
        tool = tools.get(planned.call.name)
        if tool is None:
            return _tool_not_found(planned)
        progress.started_calls.add(planned.call.id)
        # A tool has its own time limit, and shows no progress before it returns.
        progress.record_progress(services.limits.tool_timeout_seconds)
        result = await services.toolbox.run(tool, planned, _tool_context(state))
        progress.results[planned.call.id] = result
        log.debug("tool.returned", extra={"tool": tool.name, "outcome": result.outcome})
        if len(state.turn.calls) > 1:
            await _save_result(services, state, result)
        return result

    parallel = [item for item in calls if _may_overlap(state, item)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(item)) for item in parallel]
    finished = [task.result() for task in tasks]
    finished += [await run(item) for item in calls if item not in parallel]
    return {result.call_id: result for result in finished}


async def _save_result(services: Services, state: State, result: ToolReturn) -> None:
    """Store one result while other calls are still running, so that a crash does not lose it."""
    item = next(item for item in state.turn.calls if item.call.id == result.call_id)
    settled = replace(item, state=CallState.SETTLED, result=result)
    await save_now(
        services,
        lambda tx: tx.calls.put(state.run.thread_id, [settled]),
        "saving a tool result",
    )


def with_partial_results(state: State, progress: EffectProgress) -> State:
    """The state with the results that were there when the effect was interrupted."""
    calls = tuple(
        replace(item, state=CallState.SETTLED, result=progress.results[item.call.id])
        if item.call.id in progress.results
        else item
        for item in state.turn.calls
    )
    return with_calls(state, calls)


def _may_overlap(state: State, planned: PlannedCall) -> bool:
    return any(
        tool.name == planned.call.name and tool.enable_parallel_execution for tool in state.tools
    )


def _tool_context(state: State) -> ToolContext:
    return ToolContext(
        agent_id=state.agent.id,
        organization_id=state.agent.organization_id,
        thread_id=state.run.thread_id,
        run_id=state.run.id,
        step_id=state.turn.calls[0].step_id,
        environment=state.environment,
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
