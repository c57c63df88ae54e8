"""The effect of AskModel: one question to the model, and what its answer makes of the run."""

import logging
from collections.abc import AsyncIterator
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.messages import CallState, Message, OpenCall, Role, ToolCall
from holdfast.core.runs import sum_known
from holdfast.core.steps import StepStatus
from holdfast.core.turn import AskModel
from holdfast.engine.answer_facts import AnswerFacts
from holdfast.engine.attempts import ask_with_retries, with_attempts
from holdfast.engine.budget import Meter, estimate_prompt_tokens
from holdfast.engine.compact import with_overflow
from holdfast.engine.event_writer import EventWriter
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State, build_offers, prompt_history, with_progress, with_rows
from holdfast.errors import Bug, ContextWindowExceeded, ModelAnswerEmpty, ModelError
from holdfast.ports.model import Answer, ModelEvent, Question, UsageUpdate
from holdfast.ports.services import Services

log = logging.getLogger(__name__)


async def ask_model(
    services: Services,
    state: State,
    command: AskModel,
    event_writer: EventWriter,
    progress: EffectProgress,
) -> State:
    """The state after the model's answer, which is told as it comes if the caller asked for tokens."""
    if state.step is None:
        raise Bug("The model is asked without a step.")
    message_id = progress.answer.message_id
    asked = build_question(state, command)
    if services.limits.max_trace_bytes:
        asked = replace(asked, exchanges=progress.exchanges)
    budget = state.run.request.budget
    facts = AnswerFacts(message_id, state.step.id, state.policy)
    started = services.clock.monotonic_ns()

    async def ask() -> Answer:
        meter = None
        if budget is not None:
            price = await services.prices.find(state.choice)
            meter = Meter(budget, state.run, price, estimate_prompt_tokens(state, asked.tools))
        async with services.model.ask(asked) as events:
            return await _read_answer(events, state, facts, event_writer, progress, meter=meter)

    try:
        answer = await ask_with_retries(services, state, progress, ask)
    except ContextWindowExceeded as error:
        if not progress.answer.is_empty:
            raise
        return with_overflow(with_attempts(state, progress), error)
    spent = services.clock.monotonic_ns() - started
    log.debug("model.answered", extra={"milliseconds": spent // 1_000_000})
    state = with_attempts(state, progress)
    price = await services.prices.find(state.choice)
    cost = None if price is None else price.cost(answer.usage)
    return with_answer(state, answer, message_id, now=services.clock.now(), llm_ns=spent, cost=cost)


def build_question(state: State, command: AskModel) -> Question:
    offers = build_offers(state.tools, state.run.request.client_tools)
    return Question(
        choice=state.choice,
        history=prompt_history(state),
        tools=tuple(offers[name] for name in command.allowed),
        force_tool=command.forced,
        parallel_tool_calls=state.policy.parallel,
        account=state.account,
    )


async def _read_answer(
    events: AsyncIterator[ModelEvent],
    state: State,
    facts: AnswerFacts,
    event_writer: EventWriter,
    progress: EffectProgress,
    *,
    meter: Meter | None,
) -> Answer:
    wants_tokens = state.run.request.stream_tokens
    async for event in events:
        if isinstance(event, Answer):
            if wants_tokens:
                await event_writer.write(list(facts.deferred_facts()))
            return event
        if isinstance(event, UsageUpdate):
            progress.partial_usage = event.usage
            if meter is not None:
                meter.on_event(event)
            continue
        progress.on_event(event)
        if wants_tokens:
            await event_writer.write(list(facts.facts_for(event)))
        if meter is not None:
            meter.on_event(event)
    raise ModelError("The provider's stream ended before its answer was complete.", transient=True)


def with_answer(
    state: State,
    answer: Answer,
    message_id: str,
    *,
    now: datetime,
    llm_ns: int,
    cost: int | None = None,
) -> State:
    """The state with the answer in it: a row, its calls, the step's and the run's figures."""
    if state.step is None:
        raise Bug("An answer arrived without a step.")
    empty = not answer.content and not answer.tool_calls
    if empty and not _follows_results(state):
        raise ModelAnswerEmpty(
            f"The model {state.choice.handle} gave neither text nor a tool call."
        )
    step = replace(
        state.step,
        status=StepStatus.SUCCESS,
        usage=answer.usage,
        cost=cost,
        llm_request_ns=llm_ns,
        step_ns=llm_ns,
    )
    run = replace(
        state.run,
        usage=state.run.usage + answer.usage,
        cost=sum_known(state.run.cost, cost),
    )
    state = replace(
        state,
        step=step,
        run=run,
        turn=replace(
            state.turn,
            finish=answer.finish,
            is_answer_empty=empty,
            overflows=0,
            is_compaction_done=False,
        ),
    )
    state = with_progress(
        state,
        steps_taken=state.turn.progress.steps_taken + 1,
        context_tokens=answer.usage.total_tokens,
    )
    return state if empty else _with_answer_row(state, answer, message_id, now)


def _with_answer_row(state: State, answer: Answer, message_id: str, now: datetime) -> State:
    calls = _accepted_calls(answer.tool_calls, state)
    row = Message(
        id=message_id,
        agent_id=state.agent.id,
        thread_id=state.run.thread_id,
        role=Role.ASSISTANT,
        created_at=now,
        content=answer.content,
        tool_calls=calls,
        run_id=state.run.id,
        step_id=state.step.id if state.step else None,
        model=state.choice.handle,
    )
    state = replace(with_rows(state, row), has_output=True)
    step_id = row.step_id or ""
    opened = tuple(OpenCall(call, row.id, step_id, CallState.FRESH) for call in calls)
    return replace(state, turn=replace(state.turn, calls=opened))


def _accepted_calls(calls: tuple[ToolCall, ...], state: State) -> tuple[ToolCall, ...]:
    """Several calls only where they are wanted: a provider may ignore the wish (wire-v1 §7.7)."""
    return calls if state.policy.parallel else calls[:1]


def _follows_results(state: State) -> bool:
    """A model that has just used a tool may have nothing to add; one that was spoken to may not."""
    return bool(state.turn.history) and state.turn.history[-1].role is Role.TOOL
