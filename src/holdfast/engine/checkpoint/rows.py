"""Storing the rows that an effect has produced, and the facts of them that clients are shown."""

from msgspec.structs import replace

from holdfast.core.events import MessageStored
from holdfast.core.messages import Message, Role
from holdfast.core.pieces import pieces
from holdfast.engine.state import State, with_progress
from holdfast.ports.store import Transaction


def store_rows(tx: Transaction, state: State) -> tuple[State, tuple[MessageStored, ...]]:
    """Store the pending messages if there is output, and close the calls that they answer."""
    if not state.has_output:
        return state, ()
    rows = state.pending_messages
    if state.clear_context:
        tx.messages.set_context(state.run.thread_id, [state.turn.history[0].id])
    tx.messages.append(rows)
    state = _with_tools_used(tx, state)
    if state.calls_answered:
        tx.calls.close(state.run.thread_id)
    facts = tuple(
        MessageStored(row, piece)
        for row in rows
        if _is_shown(row, state)
        for piece in range(len(pieces(row)))
    )
    state = replace(
        with_progress(state, input_stored=True),
        pending_messages=(),
        has_output=False,
        calls_answered=False,
        clear_context=False,
    )
    return state, facts


def store_traces(tx: Transaction, state: State) -> None:
    if state.traces:
        tx.traces.add(state.traces)


def summary_facts(state: State) -> tuple[MessageStored, ...]:
    """The summary of a compaction, for callers that asked for compaction messages (wire-v1 §7.9)."""
    if state.pending_compaction is None or not state.run.request.include_compaction_messages:
        return ()
    return (MessageStored(state.pending_compaction.row),)


def _is_shown(row: Message, state: State) -> bool:
    """Callers are not shown their own input, nor again the answer that was streamed to them."""
    was_streamed = state.run.request.stream_tokens and row.role is not Role.TOOL
    return not was_streamed and row.id not in state.turn.input_ids


def _with_tools_used(tx: Transaction, state: State) -> State:
    """The run with the ids of the tools that its rows call or that it has run (wire-v1 §3.5)."""
    called = {call.name for row in state.pending_messages for call in row.tool_calls}
    called |= {*state.turn.progress.called, *state.used_by_tools}
    known = state.run.tools_used
    new = tuple(tool.id for tool in state.tools if tool.name in called and tool.id not in known)
    if not new:
        return state
    tx.runs.record_tools(state.run.id, new)
    return replace(state, run=replace(state.run, tools_used=known + new))
