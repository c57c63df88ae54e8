"""The state with the intent of a command in it: what is stored before the effect of the command begins. Pure."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.approvals import held_request_id, without_heartbeat
from holdfast.core.expiry import call_deadline, first_deadline
from holdfast.core.ids import Kind, sibling_id
from holdfast.core.messages import CallState, Message, Role, Text, ToolCall
from holdfast.core.steps import COMPACTION, Step
from holdfast.core.turn import AskModel, Command, Compact, RequestApproval, RunTools
from holdfast.engine.run_tools import start_order
from holdfast.engine.state import State, with_calls, with_progress, with_rows
from holdfast.ports.clock import Ids


def with_intent(state: State, command: Command, now: datetime, ids: Ids) -> State:
    """A question has a new step, tools have calls that are marked as started, held calls have their request."""
    match command:
        case AskModel():
            state = _with_step(state, now, ids)
            return state if command.nudge is None else _with_nudge(state, command.nudge, now, ids)
        case Compact(ending=ending):
            return with_progress(_with_step(state, now, ids, origin=COMPACTION), ending=ending)
        case RunTools():
            return _with_started_calls(state, command)
        case RequestApproval():
            return _with_approval_request(_with_held_calls(state, command, now))
        case _:
            return state


def _with_step(state: State, now: datetime, ids: Ids, origin: str | None = None) -> State:
    step = Step(
        id=ids.new_id(Kind.STEP),
        organization_id=state.run.organization_id,
        agent_id=state.agent.id,
        run_id=state.run.id,
        model=state.choice,
        created_at=now,
        origin=origin,
        project_id=state.run.project_id,
        trace_id=state.run.request.trace_id,
    )
    run = replace(state.run, num_steps=state.run.num_steps + 1)
    return replace(state, step=step, run=run)


def _with_nudge(state: State, text: str, now: datetime, ids: Ids) -> State:
    """The hidden message to the model that precedes the question."""
    row = Message(
        id=ids.new_id(Kind.MESSAGE),
        agent_id=state.agent.id,
        thread_id=state.run.thread_id,
        role=Role.USER,
        created_at=now,
        content=(Text(text),),
        run_id=state.run.id,
        step_id=state.step.id if state.step else None,
        hidden=True,
    )
    return with_rows(state, row)


def _with_started_calls(state: State, command: RunTools) -> State:
    """The calls that have a result are settled. Those that begin at once count as started from now on (write-ahead);
    the others wait until these have returned (``engine/run_tools``)."""
    results = {result.call_id: result for result in command.settled}
    groups = start_order(state.tools, command.planned)
    starting = {item.call.id for item in groups[0]} if groups else set()
    calls = tuple(
        replace(item, state=CallState.SETTLED, result=results[item.call.id])
        if item.call.id in results
        else replace(item, state=CallState.STARTED if item.call.id in starting else CallState.READY)
        for item in state.turn.calls
    )
    return with_calls(state, calls)


def _with_held_calls(state: State, command: RequestApproval, now: datetime) -> State:
    """The answer as it is stored while it waits: held calls have a row of their own, after the automatic ones; it has
    the content if there are no automatic calls (wire-v1 §6.2)."""
    if all(item.state is not CallState.FRESH for item in state.turn.calls):
        # An answer decided some of the calls: they are stored already, and the others wait on.
        return replace(state, has_output=True)
    *before, answer = state.pending_messages
    held = tuple(
        without_heartbeat(call, state.policy.properties(call.name)) for call in command.held
    )
    rows = _approval_rows(answer, held, command.automatic)
    row_ids = {call.id: row.id for row in rows for call in row.tool_calls}
    held_by_id = {call.id: call for call in held}
    calls = tuple(
        replace(
            item,
            call=held_by_id[item.call.id],
            message_id=row_ids[item.call.id],
            state=CallState.HELD,
            deadline=call_deadline(item.call.name, state.run.request, state.policy.rules, now),
        )
        if item.call.id in held_by_id
        else replace(item, message_id=row_ids[item.call.id], state=CallState.READY)
        for item in state.turn.calls
    )
    return replace(with_calls(state, calls), pending_messages=(*before, *rows))


def _approval_rows(
    answer: Message, held: tuple[ToolCall, ...], automatic: tuple[ToolCall, ...]
) -> Sequence[Message]:
    approval = replace(answer, role=Role.APPROVAL, tool_calls=held)
    if not automatic:
        return (approval,)
    approval = replace(approval, id=sibling_id(answer.id), content=())
    return (replace(answer, tool_calls=automatic), approval)


def _with_approval_request(state: State) -> State:
    """The run with what the inbox shows of its request."""
    asked_at = next(row.created_at for row in reversed(state.turn.history) if row.tool_calls)
    run = replace(
        state.run,
        approval_id=held_request_id(state.turn.calls),
        asked_at=asked_at,
        expires_at=first_deadline(state.turn.calls),
    )
    return replace(state, run=run)
