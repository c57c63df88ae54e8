"""The effect of AskModel: one question to the model, and the state with its answer."""

import logging
from collections.abc import AsyncIterator
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.messages import Role, ToolCall
from holdfast.core.steps import StepStatus
from holdfast.core.turn import AskModel
from holdfast.engine.answer_facts import AnswerFacts
from holdfast.engine.attempts import ask_with_retries, with_attempts
from holdfast.engine.budget import Meter, estimate_prompt_tokens
from holdfast.engine.compact import with_overflow
from holdfast.engine.event_writer import EventWriter
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import (
    State,
    build_offers,
    prompt_history,
    with_answer_row,
    with_progress,
    with_usage,
)
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
    """The state with the model's answer, which is streamed as it arrives if the caller asked for tokens."""
    if state.step is None:
        raise Bug("The model is asked without a step.")
    message_id = progress.answer.message_id
    question = build_question(state, command)
    if services.limits.max_trace_bytes:
        question = replace(question, exchanges=progress.exchanges)
    budget = state.run.request.budget
    facts = AnswerFacts(message_id, state.step.id, state.policy)
    started = services.clock.monotonic_ns()

    async def ask() -> Answer:
        meter = None
        if budget is not None:
            price = await services.prices.find(state.choice)
            meter = Meter(budget, state.run, price, estimate_prompt_tokens(state, question.tools))
        async with services.model.ask(question) as events:
            return await _read_answer(events, state, facts, event_writer, progress, meter=meter)

    try:
        answer = await ask_with_retries(services, state, progress, ask)
    except ContextWindowExceeded as error:
        if not progress.answer.is_empty:
            raise
        return with_overflow(with_attempts(state, progress), error)
    spent_ns = services.clock.monotonic_ns() - started
    log.debug("model.answered", extra={"milliseconds": spent_ns // 1_000_000})
    state = with_attempts(state, progress)
    price = await services.prices.find(state.choice)
    cost = None if price is None else price.cost(answer.usage)
    return with_answer(
        state, answer, message_id, now=services.clock.now(), llm_ns=spent_ns, cost=cost
    )


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
    """The state with the answer: its row, its calls, and the usage of the step and of the run."""
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
    turn = replace(
        state.turn,
        finish=answer.finish,
        is_answer_empty=empty,
        overflows=0,
        is_compaction_done=False,
    )
    state = with_progress(
        with_usage(replace(state, step=step, turn=turn), answer.usage, cost),
        steps_taken=turn.progress.steps_taken + 1,
        context_tokens=answer.usage.total_tokens,
    )
    if empty:
        return state
    calls = _accepted_calls(answer.tool_calls, state)
    return with_answer_row(state, message_id, answer.content, calls, now)


def _accepted_calls(calls: tuple[ToolCall, ...], state: State) -> tuple[ToolCall, ...]:
    """Only the first call unless parallel calls are allowed: a provider may ignore that setting (wire-v1 §7.7)."""
    return calls if state.policy.parallel else calls[:1]


def _follows_results(state: State) -> bool:
    """After tool results an answer may be empty; after a message it may not."""
    return bool(state.turn.history) and state.turn.history[-1].role is Role.TOOL
