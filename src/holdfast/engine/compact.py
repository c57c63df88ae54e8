"""The effect of Compact: a model writes a summary, which replaces the oldest rows in the context.

Nothing changes before the summary is complete; then one transaction changes everything (``store_compaction``).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from holdfast import system_message
from holdfast.core import compaction, context, summaries
from holdfast.core.compaction import CompactionStats, Eviction, Trigger
from holdfast.core.ids import Kind
from holdfast.core.messages import Message, Role, Text
from holdfast.core.runs import RunFailure
from holdfast.core.steps import StepStatus
from holdfast.core.system_prompt import human_time
from holdfast.core.turn import Compact
from holdfast.engine.interruption import Interrupted
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import (
    PendingCompaction,
    State,
    build_offers,
    prompt_history,
    with_progress,
)
from holdfast.engine.summariser import Summariser
from holdfast.errors import (
    Bug,
    ContextWindowExceeded,
    ModelAnswerEmpty,
    ModelError,
    ModelRejectedRequest,
    SystemPromptTooLarge,
)
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# A retry does not help against these: a context that does not fit is compacted without a summary then.
_PERMANENT_ERRORS = (ModelRejectedRequest, ModelAnswerEmpty, ContextWindowExceeded)
_NO_SUMMARY = "(No summary could be written. The messages are still on record; conversation_search finds them.)"


def with_overflow(state: State, error: ContextWindowExceeded) -> State:
    """The state whose context must be compacted before the question is asked again; raises if that cannot help."""
    if _fixed_tokens(state) > state.choice.context_window:
        raise SystemPromptTooLarge(error.detail) from error
    turn = state.turn
    evictable = compaction.evictable_count(turn.history, _count_new_rows(state))
    if state.step is None or turn.overflows >= compaction.MAX_OVERFLOW_RETRIES or not evictable:
        raise error
    step = replace(state.step, status=StepStatus.FAILED, failure=_failure(error))
    turn = replace(turn, overflows=turn.overflows + 1, is_compaction_done=False)
    return replace(state, step=step, turn=turn)


def tokens_before(state: State, trigger: Trigger) -> int:
    """How many tokens the context has: as the provider counted them, or else by estimate."""
    if trigger is Trigger.FULL:
        return state.turn.progress.context_tokens
    return _estimate_tokens(state, state.turn.history)


async def compact(
    services: Services, state: State, command: Compact, progress: EffectProgress
) -> State:
    """The state with a summary in place of its oldest rows.

    If no summary can be written, a context that is only nearly full stays as it is, and one that does not fit is
    compacted without a summary where a retry cannot help. In all other cases the error ends the run.
    """
    settings = _compaction_settings(services, state)
    planned = _plan_eviction(state, settings)
    writer = Summariser(services, state, settings, progress)
    status, failure = StepStatus.SUCCESS, None
    try:
        summary = await writer.write(planned.evicted)
    except Interrupted as interrupted:
        end = interrupted.end
        if command.ending is None or end is None or end.overrun is None:
            raise
        # The answer of the run is complete. The next run compacts the context.
        return _with_step_closed(await writer.state_with_usage(), StepStatus.CANCELLED)
    except ModelError as error:
        status, failure, summary = StepStatus.FAILED, _failure(error), _NO_SUMMARY
        if command.trigger is Trigger.FULL:
            return _with_step_closed(await writer.state_with_usage(), status, failure)
        if command.trigger is Trigger.REQUESTED or not isinstance(error, _PERMANENT_ERRORS):
            raise
    state = _with_step_closed(await writer.state_with_usage(), status, failure)
    summary = summaries.clip_summary(
        summary, settings.get("clip_chars"), state.choice.context_window
    )
    return _with_summary(services, state, command.trigger, planned, summary)


def _compaction_settings(services: Services, state: State) -> dict[str, Any]:
    """The request's settings, or else the agent's. After a second refusal all rows are summarised."""
    given = state.run.request.compaction or state.agent.compaction_settings
    summariser = services.catalogue.summary_handle(state.agent.model.handle)
    settings = context.compaction_settings(summariser, given)
    return settings | {"mode": "all"} if state.turn.overflows > 1 else settings


def _plan_eviction(state: State, settings: Mapping[str, Any]) -> Eviction:
    share = 1 - float(settings["sliding_window_percentage"])
    planned = compaction.choose_eviction(
        state.turn.history,
        settings=settings,
        available_tokens=int(share * state.choice.context_window) - _fixed_tokens(state),
        new_count=_count_new_rows(state),
    )
    if planned is None:
        raise Bug("A context without evictable rows cannot be compacted.")
    return planned


def _count_new_rows(state: State) -> int:
    """How many rows at the end must stay: they are not answered, or not stored yet."""
    pending = {row.id for row in state.pending_messages}
    return compaction.count_unanswered(state.turn.history, state.turn.input_ids | pending)


def _with_step_closed(state: State, status: StepStatus, failure: RunFailure | None = None) -> State:
    """The state whose compaction is over, successful or not."""
    if state.step is None:
        raise Bug("A summary was written without a step.")
    step = replace(state.step, status=status, failure=failure)
    return replace(state, step=step, turn=replace(state.turn, is_compaction_done=True))


def _with_summary(
    services: Services, state: State, trigger: Trigger, planned: Eviction, summary: str
) -> State:
    now = services.clock.now()
    system, *_ = state.turn.history
    stats = CompactionStats(
        trigger=trigger,
        context_window=state.choice.context_window,
        messages_count_before=len(state.turn.history),
        messages_count_after=len(planned.kept) + 2,
        context_tokens_before=tokens_before(state, trigger),
        context_tokens_after=_estimate_tokens(state, (system, *planned.kept))
        + context.estimate_tokens(summary),
    )
    text = summaries.pack(
        summary,
        len(planned.evicted),
        human_time(now, state.agent.timezone),
        stats,
        some_stay=bool(planned.kept),
    )
    row = Message(
        id=services.ids.new_id(Kind.MESSAGE),
        agent_id=state.agent.id,
        thread_id=state.run.thread_id,
        role=Role.SUMMARY,
        created_at=now,
        content=(Text(text),),
        run_id=state.run.id,
        step_id=state.step.id if state.step else None,
    )
    state = with_progress(state, context_tokens=stats.context_tokens_after)
    return replace(
        state,
        turn=replace(state.turn, history=(system, row, *planned.kept)),
        pending_compaction=PendingCompaction(row, tuple(item.id for item in planned.evicted)),
    )


def store_compaction(tx: Transaction, state: State, now: datetime) -> State:
    """Replace the evicted rows by the summary in the context, and compile the system message again."""
    pending = state.pending_compaction
    if pending is None:
        return state
    # By ids: a cancel with rollback of a run that waits in this thread may have hidden other rows meanwhile.
    tx.messages.replace_in_context(pending.row, pending.evicted_ids)
    text = system_message.compile_for_thread(tx, state.agent, state.run.thread_id, now)
    system = replace(state.turn.history[0], content=(Text(text),))
    tx.messages.rewrite(system)
    turn = replace(state.turn, history=(system, *state.turn.history[1:]))
    return replace(state, turn=turn, pending_compaction=None)


def _estimate_tokens(state: State, rows: Sequence[Message]) -> int:
    return _fixed_tokens(state) + sum(map(context.message_tokens, rows[1:]))


def _fixed_tokens(state: State) -> int:
    """The tokens that every question has: the system message and the tools."""
    offers = build_offers(state.tools, state.run.request.client_tools).values()
    schemas = [{"name": o.name, "text": o.description, "takes": o.parameters} for o in offers]
    return compaction.system_tokens(prompt_history(state)) + context.schema_tokens(schemas)


def _failure(error: ModelError) -> RunFailure:
    return RunFailure(error.kind, error.summary, error.detail)
