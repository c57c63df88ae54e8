"""An agent's context: how full the model's window is, recompiling the system message, and resetting the context."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast import system_message
from holdfast.core import context
from holdfast.core.agents import Actor, Agent
from holdfast.core.lifecycle import LIVE
from holdfast.core.mcp_schema import STATUS_KEY, WARNINGS_KEY
from holdfast.core.messages import Message, Role, Text, default_thread_id, unanswered_calls
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.core.threads import Thread
from holdfast.errors import Conflict, InvalidArgument, NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.run_end import RunEnd, end_run, report_run_end


class WindowPart(Struct, frozen=True):
    """One part of the context and its estimated number of tokens."""

    text: str
    tokens: int


class Window(Struct, frozen=True, kw_only=True):
    """How full a thread's window is."""

    size: int
    base: WindowPart
    memory: WindowPart
    rules: WindowPart
    metadata: WindowPart
    directories: WindowPart
    summary: WindowPart
    schemas: tuple[dict[str, Any], ...]
    schema_tokens: int
    messages: tuple[Message, ...]
    message_tokens: int
    context_count: int
    recall_count: int
    # The passages in its archives.
    archival_count: int = 0

    @property
    def tokens(self) -> int:
        parts = (
            self.base,
            self.memory,
            self.rules,
            self.metadata,
            self.directories,
            self.summary,
        )
        return sum(part.tokens for part in parts) + self.schema_tokens + self.message_tokens


async def load_window(
    services: Services, actor: Actor, agent_id: str, thread_id: str | None = None
) -> Window:
    """Measure the window of one of the agent's threads, or of its default thread if none is given."""

    now = services.clock.now()

    def work(tx: Transaction) -> Window:
        agent = tx.agents.get(actor.organization_id, agent_id)
        thread = tx.threads.get(actor.organization_id, thread_id or default_thread_id(agent_id))
        if thread.agent_id != agent_id:
            raise NotFound(f"Conversation with ID {thread_id} not found")
        tools = tx.agents.tools([agent_id]).get(agent_id, ())
        schemas = tuple(_shown_schema(tool.json_schema) for tool in tools)
        model = thread.choose_model(agent.model)
        rows = _with_next_prompt(tx, agent, thread, tx.messages.context(thread.id), now)
        window = _build_window(model.context_window, rows, schemas, tx.messages.count(agent_id))
        return replace(window, archival_count=tx.passages.count_by_agent([agent_id])[agent_id])

    return await services.store.read(work)


def _shown_schema(json_schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what only callers of the API are shown of it."""
    hidden = (STATUS_KEY, WARNINGS_KEY)
    return {key: value for key, value in json_schema.items() if key not in hidden}


async def recompile(
    services: Services, actor: Actor, agent_id: str, *, keep_stamp: bool, dry_run: bool
) -> str:
    """Compile the default thread's system message again and return its text. A dry run does not store it."""

    def work(tx: Transaction) -> str:
        agent = tx.agents.get(actor.organization_id, agent_id)
        row = system_message.recompile(tx, agent, services.clock.now(), keep_stamp=keep_stamp)
        if row is None:
            return ""
        if not dry_run:
            tx.messages.rewrite(row)
        return row.text

    if dry_run:
        return await services.store.read(work)
    return await services.store.write(work)


async def reset(services: Services, actor: Actor, agent_id: str) -> None:
    """Reduce the context to the recompiled system message. The messages stay in the history."""

    def work(tx: Transaction) -> Run | None:
        agent = tx.agents.get(actor.organization_id, agent_id)
        thread_id = default_thread_id(agent.id)
        _refuse_while_running(tx, agent)
        cancelled_run = _cancel_paused_run(tx, services, agent)
        row = system_message.recompile(tx, agent, services.clock.now(), keep_stamp=False)
        if row is not None:
            tx.messages.rewrite(row)
            tx.messages.set_context(thread_id, [row.id])
        return cancelled_run

    cancelled_run = await services.store.write(work)
    if cancelled_run is not None:
        report_run_end(services.telemetry, cancelled_run)


def set_context(tx: Transaction, agent: Agent, message_ids: Sequence[str]) -> None:
    """Make these messages the context of the default thread, if they are a valid history for a model."""
    thread_id = default_thread_id(agent.id)
    current = tx.messages.context_ids([thread_id]).get(thread_id, ())
    if list(current) == list(message_ids):
        return
    _refuse_while_running(tx, agent)
    rows = tx.messages.find(agent.organization_id, message_ids)
    problem = _find_context_problem(rows, thread_id)
    if problem is not None:
        raise InvalidArgument(f"message_ids cannot be set: {problem}")
    if tx.calls.list_open(thread_id):
        raise Conflict(
            "The agent waits for approval on a tool call; message_ids cannot be set now."
        )
    tx.messages.set_context(thread_id, message_ids)


def _find_context_problem(rows: Sequence[Message], thread_id: str) -> str | None:
    """Why providers would refuse these messages as a history; None if they would not."""
    if not rows or rows[0].role is not Role.SYSTEM:
        return "the first message must be the system message."
    if any(row.thread_id != thread_id for row in rows):
        return "a message belongs to another agent or conversation."
    if len({row.id for row in rows}) < len(rows):
        return "a message is named twice."
    open_calls = unanswered_calls(rows)
    if open_calls:
        return f"the tool call {open_calls[0].id} would be left without its result."
    seen: set[str] = set()
    for row in rows:
        if any(item.call_id not in seen for item in row.tool_returns):
            return f"the result in {row.id} would be left without its tool call."
        seen |= {call.id for call in row.tool_calls}
    return None


def _refuse_while_running(tx: Transaction, agent: Agent) -> None:
    """A live run would append to a context that it has not loaded."""
    query = RunQuery(
        page=Page(limit=1), thread_id=default_thread_id(agent.id), statuses=tuple(LIVE)
    )
    for run in tx.runs.list(agent.organization_id, query):
        raise Conflict(
            f"The agent is busy with run {run.id}. Wait for it or cancel it, then try again."
        )


def _cancel_paused_run(tx: Transaction, services: Services, agent: Agent) -> Run | None:
    """End the run that waits for an approval and close its held calls; None if no run waits."""
    thread_id = default_thread_id(agent.id)
    run = tx.runs.find_paused(thread_id)
    if run is None:
        return None
    # The row is locked from here on, so the run cannot be answered any more. If it was answered just before, the
    # answering run is live now and owns the calls.
    run = tx.runs.get_for_update(agent.organization_id, run.id)
    _refuse_while_running(tx, agent)
    if run.status is not RunStatus.PAUSED:
        raise Conflict(f"The run {run.id} was just answered or cancelled. Try again.")
    tx.calls.close(thread_id)
    run, _ = end_run(tx, run, RunEnd(reason=StopReason.CANCELLED, now=services.clock.now()))
    return run


def _with_next_prompt(
    tx: Transaction, agent: Agent, thread: Thread, rows: Sequence[Message], now: datetime
) -> Sequence[Message]:
    """The messages with the system message that the next model call gets."""
    if not rows or not tx.stale_prompts.is_stale(thread.id):
        return rows
    text = system_message.compile_for_thread(tx, agent, thread.id, now)
    return [replace(rows[0], content=(Text(text),)), *rows[1:]]


def _build_window(
    size: int, rows: Sequence[Message], schemas: tuple[dict[str, Any], ...], recall_count: int
) -> Window:
    system = rows[0].text if rows else ""
    messages = tuple(rows[1:])
    summaries = [row for row in messages if row.role is Role.SUMMARY]
    # First: a file may contain anything, also what looks like another section.
    directories = context.find_directories(system)
    system = system.replace(directories, "") if directories else system
    sections = {
        tag: context.find_section(system, tag)
        for tag in ("memory_blocks", "tool_usage_rules", "memory_metadata")
    }
    base = system
    for text in sections.values():
        base = base.replace(text, "") if text else base
    counted = context.without_unfinished_end(
        [row for row in messages if row.role is not Role.SUMMARY]
    )
    memory = sections["memory_blocks"]
    return Window(
        size=size,
        base=_measure_part(base.strip()),
        memory=_measure_part(
            memory.removeprefix("<memory_blocks>").removesuffix("</memory_blocks>").strip()
        ),
        rules=_measure_part(sections["tool_usage_rules"]),
        metadata=_measure_part(sections["memory_metadata"]),
        directories=_measure_part(directories),
        summary=_measure_part("\n".join(row.text for row in summaries)),
        schemas=schemas,
        schema_tokens=context.schema_tokens(schemas),
        messages=messages,
        message_tokens=sum(map(context.message_tokens, counted)),
        context_count=len(rows),
        recall_count=recall_count,
    )


def _measure_part(text: str) -> WindowPart:
    return WindowPart(text, context.estimate_tokens(text))
