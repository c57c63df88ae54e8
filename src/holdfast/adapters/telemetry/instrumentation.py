"""Wrappers of the model, the embedder and the toolbox that record a span and metrics of each call."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from time import perf_counter
from typing import Any

from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.adapters.telemetry import content, metrics
from holdfast.adapters.telemetry.metrics import Metrics
from holdfast.adapters.telemetry.spans import open_span, usage_attributes
from holdfast.core.embeddings import Embeddings
from holdfast.core.messages import Outcome, ToolReturn
from holdfast.core.models import ModelChoice
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.ports.embedder import Embedder
from holdfast.ports.model import Answer, Model, ModelEvent, Question
from holdfast.ports.toolbox import BuiltinSpec, Toolbox, ToolContext

# The name of the operation in OpenTelemetry's conventions.
_EMBEDDINGS = "embeddings"


class InstrumentedModel:
    def __init__(
        self, model: Model, tracer: Tracer, recorder: Metrics, *, with_content: bool
    ) -> None:
        self._model = model
        self._tracer = tracer
        self._metrics = recorder
        self._with_content = with_content

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        attributes = _question_attributes(question)
        if self._with_content:
            attributes["gen_ai.input.messages"] = content.input_messages(question.history)
        name = f"chat {question.choice.name}"
        call = _CallMetrics(self._metrics, question.choice)
        with call, open_span(self._tracer, name, SpanKind.CLIENT, attributes) as span:
            async with (
                self._model.ask(question) as events,
                aclosing(self._record_events(events, span, call)) as events_read,
            ):
                yield events_read

    async def _record_events(
        self, events: AsyncIterator[ModelEvent], span: Span, call: "_CallMetrics"
    ) -> AsyncGenerator[ModelEvent, None]:
        first = True
        async for event in events:
            if first:
                first = False
                seconds = call.record_first_chunk()
                span.set_attribute("gen_ai.client.operation.time_to_first_chunk", seconds)
            if isinstance(event, Answer):
                span.set_attributes(_answer_attributes(event))
                if self._with_content:
                    span.set_attribute("gen_ai.output.messages", content.output_messages(event))
                call.record_answer(event)
            yield event


class _CallMetrics:
    """The metrics of one model call."""

    def __init__(self, recorder: Metrics, choice: ModelChoice, operation: str = "chat") -> None:
        self._metrics = recorder
        self._labels = {
            "gen_ai__operation__name": operation,
            "gen_ai__provider__name": _provider_name(choice),
            "gen_ai__request__model": choice.name,
        }
        self._started_at = perf_counter()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        error = {"error__type": kind.__name__} if kind else {}
        seconds = perf_counter() - self._started_at
        self._metrics.record(metrics.CALL_SECONDS, seconds, **self._labels, **error)

    def record_first_chunk(self) -> float:
        seconds = perf_counter() - self._started_at
        self._metrics.record(metrics.FIRST_CHUNK_SECONDS, seconds, **self._labels)
        return seconds

    def record_answer(self, answer: Answer) -> None:
        self.record_tokens("input", answer.usage.prompt_tokens)
        self.record_tokens("output", answer.usage.completion_tokens)

    def record_tokens(self, kind: str, count: int) -> None:
        self._metrics.record(metrics.TOKENS, count, **self._labels, gen_ai__token__type=kind)


class InstrumentedEmbedder:
    def __init__(self, embedder: Embedder, tracer: Tracer, recorder: Metrics) -> None:
        self._embedder = embedder
        self._tracer = tracer
        self._metrics = recorder

    def is_configured(self, handle: str) -> bool:
        return self._embedder.is_configured(handle)

    async def embed(
        self, handle: str, texts: Sequence[str], *, is_query: bool = False
    ) -> Embeddings:
        choice = ModelChoice(handle=handle, context_window=0)
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": _EMBEDDINGS,
            "gen_ai.provider.name": _provider_name(choice),
            "gen_ai.request.model": choice.name,
            "holdfast.embeddings.texts": len(texts),
        }
        name = f"{_EMBEDDINGS} {choice.name}"
        call = _CallMetrics(self._metrics, choice, _EMBEDDINGS)
        with call, open_span(self._tracer, name, SpanKind.CLIENT, attributes) as span:
            made = await self._embedder.embed(handle, texts, is_query=is_query)
            span.set_attribute("gen_ai.usage.input_tokens", made.tokens)
            call.record_tokens("input", made.tokens)
            return made


class InstrumentedToolbox:
    def __init__(
        self, toolbox: Toolbox, tracer: Tracer, recorder: Metrics, *, with_content: bool
    ) -> None:
        self._toolbox = toolbox
        self._tracer = tracer
        self._metrics = recorder
        self._with_content = with_content

    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        return self._toolbox.builtin_tools()

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": planned.call.id,
        }
        if self._with_content:
            attributes["gen_ai.tool.call.arguments"] = planned.call.arguments
        started_at = perf_counter()
        # As in the store: the effect of a call that raised is not known.
        outcome: str = Outcome.UNKNOWN
        name = f"execute_tool {tool.name}"
        try:
            with open_span(self._tracer, name, SpanKind.INTERNAL, attributes) as span:
                returned = await self._toolbox.run(tool, planned, context)
                outcome = returned.outcome
                self._record_return(span, returned)
                return returned
        except asyncio.CancelledError:
            outcome = Outcome.KILLED
            raise
        finally:
            self._metrics.record(metrics.TOOL_SECONDS, perf_counter() - started_at, outcome=outcome)

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        return await self._toolbox.run_source(
            source, function, arguments, environment, requirements
        )

    def _record_return(self, span: Span, returned: ToolReturn) -> None:
        span.set_attribute("holdfast.tool.outcome", returned.outcome)
        if self._with_content:
            span.set_attribute("gen_ai.tool.call.result", content.tool_result(returned))
        if returned.outcome is not Outcome.FINISHED:
            span.set_attribute("error.type", returned.outcome)
            span.set_status(StatusCode.ERROR)


def _question_attributes(question: Question) -> dict[str, AttributeValue]:
    choice = question.choice
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider_name(choice),
        "gen_ai.request.model": choice.name,
        "gen_ai.request.max_tokens": choice.settings.max_output_tokens,
        "gen_ai.request.temperature": choice.settings.temperature,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _answer_attributes(answer: Answer) -> dict[str, AttributeValue]:
    return {"gen_ai.response.finish_reasons": [answer.finish], **usage_attributes(answer.usage)}


def _provider_name(choice: ModelChoice) -> str:
    """The provider's name in OpenTelemetry's conventions."""
    row = PROVIDERS.get(choice.provider)
    return (row and row.telemetry_name) or choice.provider
