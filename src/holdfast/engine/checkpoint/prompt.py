"""The system message before a model call: compiled again if what it shows (blocks, folders, files) has changed since."""

from datetime import datetime

from msgspec.structs import replace

from holdfast import system_message
from holdfast.core.messages import Role, Text
from holdfast.engine.state import State
from holdfast.ports.store import Transaction


def rewrite_stale_prompt(tx: Transaction, state: State, now: datetime) -> State:
    """The state with a system message that shows the files as they are now, which is stored with this checkpoint: what is
    stored is what the model gets."""
    run, history = state.run, state.turn.history
    # First: whoever changes the files from here on marks the thread again.
    tx.stale_prompts.take(run.thread_id)
    if not history or history[0].role is not Role.SYSTEM:
        return state
    # The limits of the agent may have been changed since the run began.
    agent = tx.agents.get(run.organization_id, run.agent_id)
    text = system_message.compile_for_thread(tx, agent, run.thread_id, now)
    system = replace(history[0], content=(Text(text),))
    tx.messages.rewrite(system)
    return replace(state, turn=replace(state.turn, history=(system, *history[1:])))
