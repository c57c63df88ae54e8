"""The stored system message of a thread: compiled once and rewritten in place, not compiled per step (wire-v1 §7.1).

``core.system_prompt`` renders the text; this module loads what it is made from and stores the result.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import messages
from holdfast.core.agents import Agent
from holdfast.core.blocks import Block, visible_blocks
from holdfast.core.messages import Message, Text
from holdfast.core.system_prompt import compile_prompt, human_time, parse_compiled_at
from holdfast.core.threads import Thread
from holdfast.ports.store import Transaction


def compile_first(agent: Agent, blocks: tuple[Block, ...], now: datetime) -> str:
    """The text for a new agent without messages; needs no query."""
    return _compile(agent, agent.id, _SharedContent(blocks, 0), human_time(now, agent.timezone))


def compile_for_thread(
    tx: Transaction,
    agent: Agent,
    thread_id: str,
    now: datetime,
    isolated: Sequence[Block] | None = None,
) -> str:
    """The text for a thread of the agent at the time ``now``. ``isolated``: the thread's own blocks, if not stored yet."""
    if isolated is None:
        isolated = tx.blocks.thread_blocks([thread_id])[thread_id]
    return _compile(
        agent, thread_id, _load_shared_content(tx, agent), human_time(now, agent.timezone), isolated
    )


def rewrite_all(tx: Transaction, agent_id: str, now: datetime) -> None:
    """Rewrite the stored system message of every thread of the agent. The messages keep their ids."""
    threads = tx.threads.list_of_agent(agent_id)
    if not threads:
        return
    agent = tx.agents.get(threads[0].organization_id, agent_id)
    shared, stamp = _load_shared_content(tx, agent), human_time(now, agent.timezone)
    own = tx.blocks.thread_blocks([thread.id for thread in threads])
    for row in load_stored(tx, threads):
        text = _compile(agent, row.thread_id, shared, stamp, own[row.thread_id])
        tx.messages.rewrite(replace(row, content=(Text(text),)))


def recompile(tx: Transaction, agent: Agent, now: datetime, *, keep_stamp: bool) -> Message | None:
    """The default thread's system message with a new text, not stored yet; None if the thread has none."""
    thread = tx.threads.get(agent.organization_id, messages.default_thread_id(agent.id))
    row = next(iter(load_stored(tx, [thread])), None)
    if row is None:
        return None
    kept_stamp = parse_compiled_at(row.text) if keep_stamp else None
    stamp = kept_stamp or human_time(now, agent.timezone)
    text = _compile(agent, row.thread_id, _load_shared_content(tx, agent), stamp)
    return replace(row, content=(Text(text),))


def load_stored(tx: Transaction, threads: Sequence[Thread]) -> list[Message]:
    """The system message at the start of each thread's context, where there is one."""
    contexts = tx.messages.context_ids([thread.id for thread in threads])
    heads = [ids[0] for ids in contexts.values() if ids]
    rows = tx.messages.find(threads[0].organization_id, heads) if threads else ()
    return [row for row in rows if row.role is messages.Role.SYSTEM]


class _SharedContent(Struct, frozen=True):
    """Content that is the same in the system messages of all threads of an agent."""

    blocks: tuple[Block, ...]
    recall_count: int


def _load_shared_content(tx: Transaction, agent: Agent) -> _SharedContent:
    blocks = tuple(tx.agents.blocks([agent.id]).get(agent.id, ()))
    # The system message of each thread does not count.
    message_count = tx.messages.count(agent.id) - len(tx.threads.list_of_agent(agent.id))
    return _SharedContent(blocks, max(message_count, 0))


def _compile(
    agent: Agent, thread_id: str, shared: _SharedContent, stamp: str, isolated: Sequence[Block] = ()
) -> str:
    blocks = visible_blocks(shared.blocks, isolated)
    return compile_prompt(agent, thread_id, blocks, shared.recall_count, stamp)
