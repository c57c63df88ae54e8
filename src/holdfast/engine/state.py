"""The state of a run while a worker holds it: what the store said, and what it does not know yet."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import context, tool_rules
from holdfast.core.agents import Agent
from holdfast.core.events import Event
from holdfast.core.messages import Message, OpenCall, Text
from holdfast.core.models import ModelChoice
from holdfast.core.providers import Provider, names_user_provider
from holdfast.core.runs import ClientTool, Run
from holdfast.core.steps import Step
from holdfast.core.threads import Thread
from holdfast.core.tools import Tool
from holdfast.core.traces import ProviderTrace
from holdfast.core.turn import Policy, Turn
from holdfast.ports.model import ToolOffer
from holdfast.ports.store import Transaction

_NO_PARAMETERS = {"type": "object", "properties": {}}


class PendingCompaction(Struct, frozen=True):
    """A summary that is written and not stored yet, and the rows that it stands for."""

    row: Message
    evicted_ids: tuple[str, ...]


class State(Struct, frozen=True, kw_only=True):
    run: Run
    agent: Agent
    tools: tuple[Tool, ...]
    environment: Mapping[str, str]
    choice: ModelChoice
    policy: Policy
    turn: Turn
    # Rows at the end of the history that the store does not have yet. They are stored together with
    # what the model makes of them, so a run that produces nothing leaves the history as it was.
    pending_messages: tuple[Message, ...] = ()
    # Messages that came with an answer to held calls; they follow the results of those calls.
    follow_up: tuple[Message, ...] = ()
    # Something was produced since the last checkpoint: the unstored rows may be stored.
    has_output: bool = False
    # The result row of the open calls is among the unstored rows.
    calls_answered: bool = False
    clear_context: bool = False
    # Facts that were shown already and are not durable yet.
    pending_events: tuple[Event, ...] = ()
    step: Step | None = None
    # What the provider was sent and answered in this step, where that is kept.
    traces: tuple[ProviderTrace, ...] = ()
    # The user's own account with the provider of the model, if a user brought that.
    account: Provider | None = None
    # The context is smaller than the store knows yet.
    pending_compaction: PendingCompaction | None = None


def load_state(tx: Transaction, run: Run) -> State:
    """All that the run needs, as the store has it now."""
    agent = tx.agents.get(run.organization_id, run.agent_id)
    thread = tx.threads.get(run.organization_id, run.thread_id)
    tools = tuple(tx.agents.tools([agent.id]).get(agent.id, ()))
    secrets = tx.agents.secrets([agent.id]).get(agent.id, ())
    choice = choose_model(run, thread, agent)
    rows = tuple(tx.messages.context(run.thread_id))
    unstored, follow_up = _unstored_input(run)
    # What answers calls stays with them; what the agent forgets is forgotten when it is spoken to again.
    clear = bool(run.input) and agent.message_buffer_autoclear
    clear = clear and not (run.progress.input_stored or run.is_answer)
    compacts = run.request.compaction is not None
    return State(
        run=run,
        agent=agent,
        tools=tools,
        environment={secret.key: secret.value for secret in secrets},
        choice=choice,
        policy=build_policy(run, agent, tools, choice),
        turn=Turn(
            history=(rows[:1] if clear else rows) + unstored,
            # A run that only compacts leaves calls alone: they are another run's.
            calls=() if compacts else tuple(tx.calls.list_open(run.thread_id)),
            progress=run.progress,
            input_ids=frozenset(row.id for row in run.input),
        ),
        pending_messages=unstored,
        follow_up=follow_up,
        clear_context=clear,
        account=_account(tx, run, choice),
    )


def _account(tx: Transaction, run: Run, choice: ModelChoice) -> Provider | None:
    if not names_user_provider(choice.handle):
        return None
    return tx.providers.find_by_name(run.organization_id, choice.provider)


def _unstored_input(run: Run) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The run's input that is not stored yet: what comes now, and what comes after the open calls."""
    if run.progress.input_stored:
        return (), ()
    answers = tuple(row for row in run.input if row.decisions)
    others = tuple(row for row in run.input if not row.decisions)
    return (answers, others) if run.is_answer else (others, ())


def choose_model(run: Run, thread: Thread, agent: Agent) -> ModelChoice:
    """The request's model, else the conversation's, else the agent's (wire-v1 §7.10)."""
    return run.request.override_model or thread.choose_model(agent.model)


def build_policy(run: Run, agent: Agent, tools: Sequence[Tool], choice: ModelChoice) -> Policy:
    client = run.request.client_tools
    offers = build_offers(tools, client)
    needs_person = {
        tool.name for tool in tools if tool_rules.needs_approval(agent.tool_rules, tool.name)
    }
    return Policy(
        max_steps=_max_steps(run),
        tools=tuple(offers),
        rules=agent.tool_rules,
        held=frozenset(needs_person | {tool.name for tool in client}),
        parallel=bool(choice.settings.parallel_tool_calls)
        and tool_rules.allows_parallel(agent.tool_rules),
        context_window=choice.context_window,
        only_compacts=run.request.compaction is not None,
        parameters={name: offer.parameters for name, offer in offers.items()},
    )


def _max_steps(run: Run) -> int:
    """Carrying out an answer is a step too (wire-v1 §7.5); but what was said with it is heard (wire-v1 §6.5)."""
    if not run.is_answer:
        return run.request.max_steps
    says_more = any(not row.decisions for row in run.input)
    return max(run.request.max_steps - 1, int(says_more))


def build_offers(tools: Sequence[Tool], client: Sequence[ClientTool]) -> dict[str, ToolOffer]:
    """The tools by name, as the model is told of them; a client tool replaces one of the same name."""
    offers = {
        tool.name: ToolOffer(
            tool.name, tool.description, tool.json_schema.get("parameters") or _NO_PARAMETERS
        )
        for tool in tools
    }
    for item in client:
        offers[item.name] = ToolOffer(
            item.name, item.description or "", item.parameters or _NO_PARAMETERS
        )
    return offers


def with_rows(state: State, *rows: Message) -> State:
    """The state after new rows at the end of the history."""
    turn = replace(state.turn, history=state.turn.history + rows)
    return replace(state, turn=turn, pending_messages=state.pending_messages + rows)


def with_progress(state: State, **changes: Any) -> State:
    """The state with these fields of its progress changed: the run keeps it, the turn decides by it."""
    progress = replace(state.turn.progress, **changes)
    turn, run = replace(state.turn, progress=progress), replace(state.run, progress=progress)
    return replace(state, turn=turn, run=run)


def with_calls(state: State, calls: tuple[OpenCall, ...]) -> State:
    return replace(state, turn=replace(state.turn, calls=calls))


def prompt_history(state: State) -> tuple[Message, ...]:
    """The history as the model sees it in this request."""
    history = context.truncate_returns(state.turn.history, state.choice.context_window)
    override = state.run.request.override_system
    if override is None:
        return history
    system, *rest = history
    return (replace(system, content=(Text(override),)), *rest)
