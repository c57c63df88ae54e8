"""The stored system message of a thread: compiled once and rewritten in place, not compiled per step (wire-v1 §7.1).

``core.system_prompt`` renders the text; this module loads what it is made from and stores the result, for the use cases
and the engine alike. Everything here is part of the caller's transaction.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.core import messages
from holdfast.core.agents import Agent
from holdfast.core.blocks import Block
from holdfast.core.messages import Message, Text
from holdfast.core.system_prompt import (
    PromptContent,
    compile_prompt,
    human_time,
    parse_compiled_at,
)
from holdfast.core.threads import Thread
from holdfast.ports.store import Transaction

# More would exceed what a database accepts in one query.
_AGENTS_AT_ONCE = 500


def compile_first(agent: Agent, blocks: tuple[Block, ...], now: datetime) -> str:
    """The text for a new agent without messages; needs no query."""
    content = PromptContent(blocks=blocks)
    return compile_prompt(agent, agent.id, content, human_time(now, agent.timezone))


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
    stamp = human_time(now, agent.timezone)
    return compile_prompt(agent, thread_id, _load_content(tx, agent), stamp, isolated)


def rewrite_all(tx: Transaction, agent_ids: Sequence[str], now: datetime) -> None:
    """Rewrite the stored system message of every thread of these agents. The messages keep their ids."""
    for start in range(0, len(agent_ids), _AGENTS_AT_ONCE):
        _rewrite_some(tx, agent_ids[start : start + _AGENTS_AT_ONCE], now)


def rewrite_threads(
    tx: Transaction, agent: Agent, thread_ids: Collection[str], now: datetime
) -> None:
    """Rewrite the stored system message of these threads of the agent. The messages keep their ids."""
    threads = tx.threads.list_of_agent(agent.id)
    chosen = [thread for thread in threads if thread.id in thread_ids]
    _rewrite(tx, [agent], chosen, _load_contents(tx, [agent], threads), now)


def _rewrite_some(tx: Transaction, agent_ids: Sequence[str], now: datetime) -> None:
    """With the same few queries for any number of agents: a block may be attached to thousands."""
    threads = tx.threads.list_of_agents(agent_ids)
    if not threads:
        return
    agents = tx.agents.find(threads[0].organization_id, agent_ids)
    _rewrite(tx, agents, threads, _load_contents(tx, agents, threads), now)


def _rewrite(
    tx: Transaction,
    agents: Sequence[Agent],
    threads: Sequence[Thread],
    contents: Mapping[str, PromptContent],
    now: datetime,
) -> None:
    by_id = {agent.id: agent for agent in agents}
    own = tx.blocks.thread_blocks([thread.id for thread in threads])
    for row in load_stored(tx, threads):
        agent = by_id[row.agent_id]
        stamp = human_time(now, agent.timezone)
        text = compile_prompt(agent, row.thread_id, contents[agent.id], stamp, own[row.thread_id])
        tx.messages.rewrite(replace(row, content=(Text(text),)))


def recompile(tx: Transaction, agent: Agent, now: datetime, *, keep_stamp: bool) -> Message | None:
    """The default thread's system message with a new text, not stored yet; None if the thread has none."""
    thread = tx.threads.get(agent.organization_id, messages.default_thread_id(agent.id))
    row = next(iter(load_stored(tx, [thread])), None)
    if row is None:
        return None
    kept_stamp = parse_compiled_at(row.text) if keep_stamp else None
    stamp = kept_stamp or human_time(now, agent.timezone)
    text = compile_prompt(agent, row.thread_id, _load_content(tx, agent), stamp)
    return replace(row, content=(Text(text),))


def load_stored(tx: Transaction, threads: Sequence[Thread]) -> list[Message]:
    """The system message at the start of each thread's context, where there is one."""
    heads = tx.messages.context_heads([thread.id for thread in threads])
    return [row for row in heads if row.role is messages.Role.SYSTEM]


def _load_content(tx: Transaction, agent: Agent) -> PromptContent:
    return _load_contents(tx, [agent], tx.threads.list_of_agent(agent.id))[agent.id]


def _load_contents(
    tx: Transaction, agents: Sequence[Agent], threads: Sequence[Thread]
) -> dict[str, PromptContent]:
    agent_ids = [agent.id for agent in agents]
    blocks = tx.agents.blocks(agent_ids)
    message_counts = tx.messages.count_by_agent(agent_ids)
    passage_counts = tx.passages.count_by_agent(agent_ids)
    tags = tx.passages.tags_by_agent(agent_ids)
    # The system message of each thread does not count.
    system_messages = Counter(thread.agent_id for thread in threads)
    return {
        agent_id: PromptContent(
            blocks=tuple(blocks.get(agent_id, ())),
            recall_count=max(message_counts.get(agent_id, 0) - system_messages[agent_id], 0),
            archival_count=passage_counts[agent_id],
            archival_tags=tuple(tags[agent_id]),
        )
        for agent_id in agent_ids
    }
