"""The state of a run while a worker works on it: what the store has, and what is not stored yet."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import context, strict_schemas, tool_rules
from holdfast.core.agents import Agent
from holdfast.core.events import Event
from holdfast.core.messages import CallState, Message, OpenCall, Part, Role, Text, ToolCall
from holdfast.core.models import ModelChoice
from holdfast.core.providers import Provider
from holdfast.core.runs import ClientTool, Run, Usage, sum_known
from holdfast.core.steps import Step
from holdfast.core.threads import Thread
from holdfast.core.tools import Tool
from holdfast.core.traces import ProviderTrace
from holdfast.core.turn import Policy, Turn
from holdfast.errors import Bug
from holdfast.ports.model import ToolOffer
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

_NO_PARAMETERS = {"type": "object", "properties": {}}


class PendingCompaction(Struct, frozen=True):
    """A summary that is not stored yet, and the rows that it replaces in the context."""

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
    # Rows at the end of the history that the store does not have yet. The input is stored together with the
    # first output of the run, so a run without output leaves the history unchanged.
    pending_messages: tuple[Message, ...] = ()
    # Messages that came with an answer to held calls; they follow the results of those calls.
    follow_up: tuple[Message, ...] = ()
    # There is output since the last checkpoint: the next one stores the pending messages.
    has_output: bool = False
    # The result row of the open calls is among the pending messages.
    calls_answered: bool = False
    clear_context: bool = False
    # Events that were published already and are not durable yet.
    pending_events: tuple[Event, ...] = ()
    step: Step | None = None
    # The provider's requests and responses of this step, if the server is set to keep them.
    traces: tuple[ProviderTrace, ...] = ()
    # The user's own account with the provider of the model, if the model is one of a user provider.
    account: Provider | None = None
    # The names of the tools that other tools have run, and not the model.
    used_by_tools: frozenset[str] = frozenset()
    # A compaction that the next checkpoint stores.
    pending_compaction: PendingCompaction | None = None


def load_state(tx: Transaction, services: Services, run: Run) -> State:
    """Load all that the run needs."""
    agent = tx.agents.get(run.organization_id, run.agent_id)
    thread = tx.threads.get(run.organization_id, run.thread_id)
    tools = tuple(tx.agents.tools([agent.id]).get(agent.id, ()))
    secrets = tx.agents.secrets([agent.id]).get(agent.id, ())
    choice = choose_model(run, thread, agent)
    rows = tuple(tx.messages.context(run.thread_id))
    unstored, follow_up = _unstored_input(run)
    # An agent that forgets does so when it gets a new message. An answer to held calls needs the rows of the calls.
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
            # A run that only compacts does not touch open calls: they belong to another run.
            calls=() if compacts else tuple(tx.calls.list_open(run.thread_id)),
            progress=run.progress,
            input_ids=frozenset(row.id for row in run.input),
            tokens_used=run.usage.total_tokens,
            cost=run.cost,
        ),
        pending_messages=unstored,
        follow_up=follow_up,
        clear_context=clear,
        account=_account(tx, services, run, choice),
    )


def _account(tx: Transaction, services: Services, run: Run, choice: ModelChoice) -> Provider | None:
    if services.catalogue.is_reserved(choice.provider):
        return None
    return tx.providers.find_by_name(run.organization_id, choice.provider)


def _unstored_input(run: Run) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The run's input that is not stored yet: the rows to add now, and those to add after the results of the calls."""
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
        budget=run.request.budget,
        is_strict=bool(choice.settings.strict),
        parameters={name: offer.parameters for name, offer in offers.items()},
    )


def _max_steps(run: Run) -> int:
    """Executing an answer counts as a step (wire-v1 §7.5), but a message that came with it gets its answer
    (wire-v1 §6.5)."""
    if not run.is_answer:
        return run.request.max_steps
    has_message = any(not row.decisions for row in run.input)
    return max(run.request.max_steps - 1, int(has_message))


def build_offers(tools: Sequence[Tool], client: Sequence[ClientTool]) -> dict[str, ToolOffer]:
    """The tools by name, as they are offered to the model; a client tool replaces a tool of the same name."""
    offers = {
        tool.name: ToolOffer(
            tool.name,
            tool.description,
            tool.json_schema.get("parameters") or _NO_PARAMETERS,
            strict_schemas.allows_strict(tool.json_schema),
        )
        for tool in tools
    }
    for item in client:
        offers[item.name] = ToolOffer(
            item.name, item.description or "", item.parameters or _NO_PARAMETERS
        )
    return offers


def with_rows(state: State, *rows: Message) -> State:
    """The state with new rows at the end of the history."""
    turn = replace(state.turn, history=state.turn.history + rows)
    return replace(state, turn=turn, pending_messages=state.pending_messages + rows)


def with_progress(state: State, **changes: Any) -> State:
    """The state with these fields of its progress changed, in the run and in the turn."""
    progress = replace(state.turn.progress, **changes)
    turn, run = replace(state.turn, progress=progress), replace(state.run, progress=progress)
    return replace(state, turn=turn, run=run)


def with_usage(state: State, usage: Usage, cost: int | None) -> State:
    """The state whose run has used this much more, in the run and in the turn."""
    run = state.run
    run = replace(run, usage=run.usage + usage, cost=sum_known(run.cost, cost))
    turn = replace(state.turn, tokens_used=run.usage.total_tokens, cost=run.cost)
    return replace(state, run=run, turn=turn)


def with_answer_row(
    state: State,
    row_id: str,
    content: tuple[Part, ...],
    calls: tuple[ToolCall, ...],
    now: datetime,
) -> State:
    """The state with the row of an answer of its step, complete or partial, whose calls are open now."""
    if state.step is None:
        raise Bug("An answer arrived without a step.")
    row = Message(
        id=row_id,
        agent_id=state.agent.id,
        thread_id=state.run.thread_id,
        role=Role.ASSISTANT,
        created_at=now,
        content=content,
        tool_calls=calls,
        run_id=state.run.id,
        step_id=state.step.id,
        model=state.choice.handle,
    )
    opened = tuple(OpenCall(call, row.id, state.step.id, CallState.FRESH) for call in calls)
    return replace(with_calls(with_rows(state, row), opened), has_output=True)


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
