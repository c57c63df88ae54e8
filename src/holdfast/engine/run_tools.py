"""The effect of RunTools: every open call gets exactly one outcome, in one row."""

import asyncio
import logging

from msgspec.structs import replace

from holdfast.core.ids import Kind
from holdfast.core.messages import (
    CallState,
    Message,
    Outcome,
    Role,
    Text,
    ToolReturn,
)
from holdfast.core.turn import PlannedCall, RunTools
from holdfast.engine.progress import EffectProgress
from holdfast.engine.save_now import save_now
from holdfast.engine.state import State, with_calls, with_rows
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.services import Services
from holdfast.ports.toolbox import ToolContext

log = logging.getLogger(__name__)


async def run_tools(
    services: Services, state: State, command: RunTools, progress: EffectProgress
) -> State:
    """The state after the tools."""
    started = services.clock.monotonic_ns()
    results = await _execute_all(services, state, command, progress)
    spent = services.clock.monotonic_ns() - started
    return with_results(
        state, command, results, clock=services.clock, ids=services.ids, spent_ns=spent
    )


async def _execute_all(
    services: Services, state: State, command: RunTools, progress: EffectProgress
) -> dict[str, ToolReturn]:
    """Tools that allow it run side by side, the others one by one after them (wire-v1 §7.7)."""
    tools = {tool.name: tool for tool in state.tools}

    async def carry_out(planned: PlannedCall) -> ToolReturn:
        tool = tools.get(planned.call.name)
        if tool is None:
            return _tool_not_found(planned)
        progress.started_calls.add(planned.call.id)
        # A tool has a time limit of its own, and says nothing until it is done.
        progress.record_progress(services.limits.tool_timeout_seconds)
        result = await services.toolbox.run(tool, planned, _tool_context(state))
        progress.results[planned.call.id] = result
        log.debug("tool.returned", extra={"tool": tool.name, "outcome": result.outcome})
        if len(state.turn.calls) > 1:
            await _save_result(services, state, result)
        return result

    together = [item for item in command.planned if _may_overlap(state, item)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(carry_out(item)) for item in together]
    finished = [task.result() for task in tasks]
    finished += [await carry_out(item) for item in command.planned if item not in together]
    return {result.call_id: result for result in finished}


async def _save_result(services: Services, state: State, result: ToolReturn) -> None:
    """Keep one outcome while its siblings are still running: a crash must not lose it."""
    item = next(item for item in state.turn.calls if item.call.id == result.call_id)
    settled = replace(item, state=CallState.SETTLED, result=result)
    await save_now(
        services,
        lambda tx: tx.calls.put(state.run.thread_id, [settled]),
        "keeping a tool's result",
    )


def with_partial_results(state: State, progress: EffectProgress) -> State:
    """The state with the results that were there when the effect was cut short."""
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
    command: RunTools,
    results: dict[str, ToolReturn],
    *,
    clock: Clock,
    ids: Ids,
    spent_ns: int,
) -> State:
    """The state with the result row in it, in the order of the calls, and what was to follow it."""
    results |= {result.call_id: result for result in command.settled}
    row = Message(
        id=ids.new_id(Kind.MESSAGE),
        agent_id=state.agent.id,
        thread_id=state.run.thread_id,
        role=Role.TOOL,
        created_at=clock.now(),
        tool_returns=tuple(results[item.call.id] for item in state.turn.calls),
        name=command.planned[0].call.name if command.planned else None,
        run_id=state.run.id,
        step_id=state.turn.calls[0].step_id,
    )
    called = tuple(item.call.name for item in command.planned)
    progress = replace(state.turn.progress, called=state.turn.progress.called + called)
    turn = replace(state.turn, calls=(), progress=progress, stop=command.stop)
    run = replace(state.run, progress=progress)
    step = state.step
    if step is not None:
        total = (step.llm_request_ns or 0) + spent_ns
        step = replace(step, tool_execution_ns=spent_ns, step_ns=total)
    rows = (row, *state.follow_up)
    state = replace(
        state, turn=turn, run=run, step=step, has_output=True, calls_answered=True, follow_up=()
    )
    return with_rows(state, *rows)
