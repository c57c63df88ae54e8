"""Writing the summary of a compaction with a model."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.core import context, summaries
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelChoice
from holdfast.core.prices import Price
from holdfast.core.runs import sum_known
from holdfast.core.traces import CallType
from holdfast.engine.attempts import ask_with_retries, with_attempts
from holdfast.engine.budget import Meter
from holdfast.engine.partial_usage import with_partial_usage
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State
from holdfast.errors import CallerError, ContextWindowExceeded, ModelAnswerEmpty, ModelError
from holdfast.ports.model import Answer, Question, UsageUpdate
from holdfast.ports.services import Services

log = logging.getLogger(__name__)

# Which share of the summariser's window the transcript may fill; the next one if the provider refuses it as too long.
_WINDOW_SHARES = (0.7, 0.35, 0.15)
_ACKNOWLEDGEMENT = (
    "Summarise what I send you next. Write the summary and nothing else.",
    "I will.",
)


class Summariser:
    """Asks the chosen model for a summary, and the agent's own model if that fails, within the budget."""

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
        self._started_ns = services.clock.monotonic_ns()

    async def state_with_usage(self) -> State:
        """The state with the usage, the failed attempts and the time of writing."""
        state = with_attempts(self._state, self._progress)
        state = await with_partial_usage(self._services, state, self._progress)
        if state.step is None:
            return state
        spent_ns = self._services.clock.monotonic_ns() - self._started_ns
        model = self._progress.choice or state.step.model
        step = replace(state.step, model=model, llm_request_ns=spent_ns, step_ns=spent_ns)
        return replace(state, step=step)

    async def write(self, rows: Sequence[Message]) -> str:
        """The text of the summary of these rows. Raises the error of the last model that was asked."""
        *first, own = self._candidate_models()
        for choice in first:
            if await self._is_unpriced(choice):
                continue
            try:
                return await self._summarise_with(choice, rows)
            except ModelError as error:
                fields = {"model": choice.handle, "failure": error.kind}
                log.warning("compaction.summariser_failed", extra=fields)
        return await self._summarise_with(own, rows)

    async def _is_unpriced(self, choice: ModelChoice) -> bool:
        """Whether the budget limits the cost and the price of the model is not known."""
        budget = self._state.run.request.budget
        if budget is None or budget.cost is None:
            return False
        return await self._services.prices.find(choice) is None

    def _candidate_models(self) -> list[ModelChoice]:
        """The chosen summariser if it is available, and the model of the thread."""
        own = self._state.choice
        own = replace(own, settings=replace(own.settings, response_format=None))
        handle, given = self._settings["model"], self._settings.get("model_settings")
        is_own = handle == own.handle and not given
        # A conversation with a private server is not sent to another provider unless that was chosen explicitly.
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
        question = Question(
            choice=choice,
            history=self._build_history(choice, rows, share),
            call_type=CallType.SUMMARIZATION,
            account=self._state.account if choice.provider == own.provider else None,
            exchanges=self._progress.exchanges if self._services.limits.max_trace_bytes else None,
        )
        price = await self._services.prices.find(choice)
        answer = await ask_with_retries(
            self._services, self._state, self._progress, lambda: self._read_answer(question, price)
        )
        self._progress.on_answer(answer.usage, None if price is None else price.cost(answer.usage))
        text = "\n".join(part.text for part in answer.content if isinstance(part, Text))
        if not text.strip():
            raise ModelAnswerEmpty(f"The model {choice.handle} wrote no summary.")
        return text

    async def _read_answer(self, question: Question, price: Price | None) -> Answer:
        progress = self._progress
        progress.record_progress()
        meter = self._build_meter(question, price)
        async with self._services.model.ask(question) as events:
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

    def _build_meter(self, question: Question, price: Price | None) -> Meter | None:
        run, before = self._state.run, self._progress
        budget = run.request.budget
        if budget is None:
            return None
        # Includes the usage of summaries that were rejected.
        run = replace(run, usage=run.usage + before.usage, cost=sum_known(run.cost, before.cost))
        tokens = sum(map(context.message_tokens, question.history))
        return Meter(budget, run, price, tokens)

    def _build_history(
        self, choice: ModelChoice, rows: Sequence[Message], share: float
    ) -> tuple[Message, ...]:
        chars = int(share * choice.context_window) * context.BYTES_PER_TOKEN
        texts = [(Role.SYSTEM, str(self._settings["prompt"]))]
        if self._settings.get("prompt_acknowledgement"):
            texts += [(Role.USER, _ACKNOWLEDGEMENT[0]), (Role.ASSISTANT, _ACKNOWLEDGEMENT[1])]
        texts.append((Role.USER, summaries.render_transcript(rows, chars)))
        blank = self._state.turn.history[0]
        return tuple(replace(blank, role=role, content=(Text(text),)) for role, text in texts)
