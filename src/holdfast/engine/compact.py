"""The effect of Compact: a summary is written, and takes the place of the rows that it tells of.

Nothing is changed before the summary is there; then one transaction changes everything (``store_compaction``).
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from holdfast.core import compaction, context, summaries
from holdfast.core.blocks import visible_blocks
from holdfast.core.compaction import CompactionStats, Eviction, Trigger
from holdfast.core.ids import Kind
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price
from holdfast.core.runs import RunFailure, sum_known
from holdfast.core.steps import StepStatus
from holdfast.core.system_prompt import compile_prompt, human_time
from holdfast.core.traces import CallType
from holdfast.core.turn import Compact
from holdfast.engine.attempts import ask_with_retries, with_attempts
from holdfast.engine.budget import Meter
from holdfast.engine.interruption import Interrupted
from holdfast.engine.partial_usage import with_partial_usage
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import (
    PendingCompaction,
    State,
    build_offers,
    prompt_history,
    with_progress,
)
from holdfast.errors import (
    Bug,
    CallerError,
    ContextWindowExceeded,
    ModelAnswerEmpty,
    ModelError,
    ModelRejectedRequest,
    SystemPromptTooLarge,
)
from holdfast.ports.model import Answer, Question, UsageUpdate
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# How much of a summariser's window a transcript may take; less if the provider says that it was too much.
_WINDOW_SHARES = (0.7, 0.35, 0.15)
# These will not go away by themselves: a thread that does not fit must not wait for them.
_PERMANENT_ERRORS = (ModelRejectedRequest, ModelAnswerEmpty, ContextWindowExceeded)
_NO_SUMMARY = "(No summary could be written. The messages are still on record; conversation_search finds them.)"
_ACKNOWLEDGEMENT = (
    "Summarise what I send you next. Write the summary and nothing else.",
    "I will.",
)


def with_overflow(state: State, error: ContextWindowExceeded) -> State:
    """The state in which the context has to be made smaller before the question is asked again; raises if that
    would be of no use."""
    if _fixed_tokens(state) > state.choice.context_window:
        raise SystemPromptTooLarge(error.detail) from error
    turn = state.turn
    may_go = compaction.evictable_count(turn.history, _count_new_rows(state))
    if state.step is None or turn.overflows >= compaction.MAX_OVERFLOW_RETRIES or not may_go:
        raise error
    step = replace(state.step, status=StepStatus.FAILED, failure=_failure(error))
    turn = replace(turn, overflows=turn.overflows + 1, is_compaction_done=False)
    return replace(state, step=step, turn=turn)


def tokens_before(state: State, trigger: Trigger) -> int:
    """How full the window is: as the provider counted it, else by estimate."""
    if trigger is Trigger.FULL:
        return state.turn.progress.context_tokens
    return _estimate_tokens(state, state.turn.history)


async def compact(
    services: Services, state: State, command: Compact, progress: EffectProgress
) -> State:
    """The state with a summary in the place of its oldest rows. A window that is only nearly full stays as it is
    if no summary can be had; where there is no way on without one, the summariser's error ends the run."""
    settings = _compaction_settings(services, state)
    planned = _plan_eviction(state, settings)
    writer = _Summariser(services, state, settings, progress)
    status, failure = StepStatus.SUCCESS, None
    try:
        summary = await writer.write(planned.evicted)
    except Interrupted as struck:
        if command.ending is None or struck.end is None or struck.end.overrun is None:
            raise
        # It has said what it had to say; making its context smaller is left to the next run.
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
    """The request's settings, else the agent's; a question that was refused twice spares nothing."""
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
        raise Bug("A context is to be made smaller that has nothing to spare.")
    return planned


def _count_new_rows(state: State) -> int:
    """The rows at the end that must stay: nobody has answered them, or the store does not have them yet."""
    unstored = {row.id for row in state.pending_messages}
    return compaction.count_unanswered(state.turn.history, state.turn.input_ids | unstored)


def _with_step_closed(state: State, status: StepStatus, failure: RunFailure | None = None) -> State:
    """The state after the summariser was asked, which need not be done again now."""
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
    """Show the summary in the place of the rows that leave, and compile the system message again."""
    done = state.pending_compaction
    if done is None:
        return state
    # The thread may wait for a person meanwhile: somebody may have cancelled that, or rolled it back.
    tx.messages.replace_in_context(done.row, done.evicted_ids)
    system = replace(
        state.turn.history[0], content=(Text(_compile_system_message(tx, state, now)),)
    )
    tx.messages.rewrite(system)
    turn = replace(state.turn, history=(system, *state.turn.history[1:]))
    return replace(state, turn=turn, pending_compaction=None)


def _compile_system_message(tx: Transaction, state: State, now: datetime) -> str:
    agent, thread_id = state.agent, state.run.thread_id
    own = tx.blocks.thread_blocks([thread_id])[thread_id]
    blocks = visible_blocks(tx.agents.blocks([agent.id]).get(agent.id, ()), own)
    # One row of each thread is its system message, which nobody said.
    said = max(tx.messages.count(agent.id) - len(tx.threads.list_of_agent(agent.id)), 0)
    stamp = human_time(now, agent.timezone)
    return compile_prompt(agent, thread_id, blocks, said, stamp)


def _estimate_tokens(state: State, rows: Sequence[Message]) -> int:
    return _fixed_tokens(state) + sum(map(context.message_tokens, rows[1:]))


def _fixed_tokens(state: State) -> int:
    """What every question takes: the system message and the tools."""
    offers = build_offers(state.tools, state.run.request.client_tools).values()
    schemas = [{"name": o.name, "text": o.description, "takes": o.parameters} for o in offers]
    return compaction.system_tokens(prompt_history(state)) + context.schema_tokens(schemas)


def _failure(error: ModelError) -> RunFailure:
    return RunFailure(error.kind, error.summary, error.detail)


class _Summariser:
    """Asks the chosen model for a summary, and if that cannot the agent's own, within what the request may use up."""

    def __init__(
        self,
        services: Services,
        state: State,
        settings: Mapping[str, Any],
        progress: EffectProgress,
    ) -> None:
        self._services = services
        self._state = state
        self._settings = settings
        self._progress = progress
        self._began_ns = services.clock.monotonic_ns()

    async def state_with_usage(self) -> State:
        """The state with what it took."""
        state = with_attempts(self._state, self._progress)
        state = await with_partial_usage(self._services, state, self._progress)
        if state.step is None:
            return state
        spent_ns = self._services.clock.monotonic_ns() - self._began_ns
        model = self._progress.choice or state.step.model
        step = replace(state.step, model=model, llm_request_ns=spent_ns, step_ns=spent_ns)
        return replace(state, step=step)

    async def write(self, rows: Sequence[Message]) -> str:
        *first, own = self._candidate_models()
        for choice in first:
            if await self._is_unpriced(choice):
                continue
            try:
                return await self._summarise_with(choice, rows)
            except ModelError as error:
                told = {"model": choice.handle, "failure": error.kind}
                log.warning("compaction.summariser_failed", extra=told)
        return await self._summarise_with(own, rows)

    async def _is_unpriced(self, choice: ModelChoice) -> bool:
        """Whether nobody could say when it has cost too much."""
        budget = self._state.run.request.budget
        if budget is None or budget.cost is None:
            return False
        return await self._services.prices.find(choice) is None

    def _candidate_models(self) -> list[ModelChoice]:
        """The summariser that was chosen, if it can be reached, and the model that answers in the thread."""
        own = self._state.choice
        own = replace(own, settings=replace(own.settings, response_format=None))
        handle, given = self._settings["model"], self._settings.get("model_settings")
        is_own = handle == own.handle and not given
        # What is said to a server of somebody's own is not to be read elsewhere unless that was chosen.
        is_private = own.endpoint is not None and handle == (
            self._services.catalogue.summary_handle(own.handle)
        )
        if is_own or is_private or self._settings["mode"] in context.SELF_COMPACTING_MODES:
            return [own]
        try:
            info = self._services.catalogue.find(handle)
        except CallerError:
            return [own]
        wanted = summaries.summary_settings(given)
        chosen = ModelChoice(handle=handle, context_window=info.context_window, settings=wanted)
        return [chosen, own]

    async def _summarise_with(self, choice: ModelChoice, rows: Sequence[Message]) -> str:
        self._progress.choice = choice
        *shares, last = _WINDOW_SHARES
        for share in shares:
            try:
                return await self._ask_for_summary(choice, rows, share)
            except ContextWindowExceeded:
                continue
        return await self._ask_for_summary(choice, rows, last)

    async def _ask_for_summary(
        self, choice: ModelChoice, rows: Sequence[Message], share: float
    ) -> str:
        own = self._state.choice
        asked = Question(
            choice=choice,
            history=self._build_history(choice, rows, share),
            call_type=CallType.SUMMARIZATION,
            account=self._state.account if choice.provider == own.provider else None,
            exchanges=self._progress.exchanges if self._services.limits.max_trace_bytes else None,
        )
        price = await self._services.prices.find(choice)
        answer = await ask_with_retries(
            self._services, self._state, self._progress, lambda: self._read_answer(asked, price)
        )
        self._progress.on_answer(answer.usage, None if price is None else price.cost(answer.usage))
        text = "\n".join(part.text for part in answer.content if isinstance(part, Text))
        if not text.strip():
            raise ModelAnswerEmpty(f"The model {choice.handle} wrote no summary.")
        return text

    async def _read_answer(self, asked: Question, price: Price | None) -> Answer:
        progress = self._progress
        progress.record_progress()
        meter = self._build_meter(asked, price)
        async with self._services.model.ask(asked) as events:
            async for event in events:
                if isinstance(event, Answer):
                    return event
                progress.record_progress()
                if isinstance(event, UsageUpdate):
                    progress.partial_usage = event.usage
                if meter is not None:
                    meter.on_event(event)
        raise ModelError(
            "The provider's stream ended before its summary was complete.", transient=True
        )

    def _build_meter(self, asked: Question, price: Price | None) -> Meter | None:
        run, before = self._state.run, self._progress
        budget = run.request.budget
        if budget is None:
            return None
        # With the summaries that came to nothing.
        run = replace(run, usage=run.usage + before.usage, cost=sum_known(run.cost, before.cost))
        tokens = sum(map(context.message_tokens, asked.history))
        return Meter(budget, run, price, tokens)

    def _build_history(
        self, choice: ModelChoice, rows: Sequence[Message], share: float
    ) -> tuple[Message, ...]:
        chars = int(share * choice.context_window) * context.BYTES_PER_TOKEN
        said = [(Role.SYSTEM, str(self._settings["prompt"]))]
        if self._settings.get("prompt_acknowledgement"):
            said += [(Role.USER, _ACKNOWLEDGEMENT[0]), (Role.ASSISTANT, _ACKNOWLEDGEMENT[1])]
        said.append((Role.USER, summaries.render_transcript(rows, chars)))
        blank = self._state.turn.history[0]
        return tuple(replace(blank, role=role, content=(Text(text),)) for role, text in said)
