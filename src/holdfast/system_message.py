"""The stored system message of a thread: compiled once and rewritten in place, not compiled per step (wire-v1 §7.1).

``core.system_prompt`` renders the text; this module loads what it is made from and stores the result, for the use cases
and the engine alike. Everything here is part of the caller's transaction.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.core import messages
from holdfast.core.agent_files import (
    AttachedFile,
    FileView,
    files_open_limit,
    render_directories,
    render_view,
    view_limit,
)
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


def show_new_blocks(
    tx: Transaction, agent_ids: Sequence[str], now: datetime, *, own_thread: str | None = None
) -> None:
    """Rewrite the stored system message of the default thread of each of these agents, whose blocks have changed, and of
    ``own_thread``, if a tool that runs there has changed them. Their other threads keep it until they ask the model
    next, or are compiled or compacted on request (wire-v1 §7.1). The messages keep their ids."""
    for start in range(0, len(agent_ids), _AGENTS_AT_ONCE):
        some = agent_ids[start : start + _AGENTS_AT_ONCE]
        rewritten = set(map(messages.default_thread_id, some))
        if own_thread is not None:
            rewritten.add(own_thread)
        _rewrite_some(tx, some, rewritten, now)
        tx.stale_prompts.mark(some, except_threads=rewritten)


def rewrite_threads(
    tx: Transaction, agent: Agent, thread_ids: Collection[str], now: datetime
) -> None:
    """Rewrite the stored system message of these threads of the agent. The messages keep their ids."""
    threads = tx.threads.list_of_agent(agent.id)
    chosen = [thread for thread in threads if thread.id in thread_ids]
    _rewrite(tx, [agent], chosen, _load_contents(tx, [agent], threads), now)


def _rewrite_some(
    tx: Transaction, agent_ids: Sequence[str], thread_ids: Collection[str], now: datetime
) -> None:
    """With the same few queries for any number of agents: a block may be attached to thousands."""
    threads = tx.threads.list_of_agents(agent_ids)
    if not threads:
        return
    agents = tx.agents.find(threads[0].organization_id, agent_ids)
    chosen = [thread for thread in threads if thread.id in thread_ids]
    _rewrite(tx, agents, chosen, _load_contents(tx, agents, threads), now)


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


def load_file_views(tx: Transaction, agents: Sequence[Agent]) -> Mapping[str, Sequence[FileView]]:
    """What each agent sees of its files, in the order in which they were linked."""
    attached = tx.agent_files.list_of_agents([agent.id for agent in agents])
    return {
        agent.id: [load_file_view(tx, item, view_limit(agent)) for item in attached[agent.id]]
        for agent in agents
    }


def load_file_view(tx: Transaction, attached: AttachedFile, limit: int) -> FileView:
    """What an agent sees of the file, in at most ``limit`` characters."""
    state, total = attached.state, attached.lines
    if not state.is_open or not total:
        return FileView(attached)
    text = tx.contents.read_lines(
        attached.file.content_id, state.start_line or 1, state.end_line, limit
    )
    lines = text.removesuffix("\n").split("\n")
    return FileView(attached, render_view(lines, total, state.start_line, state.end_line, limit))


def _load_directories(tx: Transaction, agents: Sequence[Agent]) -> Mapping[str, str]:
    """The section about folders and files; only for agents that have a folder."""
    folders = tx.agent_files.folders([agent.id for agent in agents])
    holders = [agent for agent in agents if folders[agent.id]]
    if not holders:
        return {}
    views = load_file_views(tx, holders)
    return {
        agent.id: render_directories(
            folders[agent.id], views[agent.id], files_open_limit(agent), view_limit(agent)
        )
        for agent in holders
    }


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
    directories = _load_directories(tx, agents)
    # The system message of each thread does not count.
    system_messages = Counter(thread.agent_id for thread in threads)
    return {
        agent_id: PromptContent(
            blocks=tuple(blocks.get(agent_id, ())),
            recall_count=max(message_counts.get(agent_id, 0) - system_messages[agent_id], 0),
            archival_count=passage_counts[agent_id],
            archival_tags=tuple(tags[agent_id]),
            directories=directories.get(agent_id, ""),
        )
        for agent_id in agent_ids
    }
