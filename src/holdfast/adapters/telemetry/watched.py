"""The model and the toolbox, watched: each call is a span and some figures. The engine does not know."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from time import perf_counter
from typing import Any

from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from holdfast.adapters.telemetry import content, figures
from holdfast.adapters.telemetry.figures import Figures
from holdfast.adapters.telemetry.spans import usage, within
from holdfast.core.messages import Outcome, ToolReturn
from holdfast.core.models import ModelChoice
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.ports.model import Answer, Model, ModelEvent, Question
from holdfast.ports.toolbox import BuiltinSpec, Toolbox, ToolContext

# What the conventions call the providers.
_PROVIDERS = {"google_ai": "gcp.gemini"}


class WatchedModel:
    def __init__(
        self, model: Model, tracer: Tracer, numbers: Figures, *, with_content: bool
    ) -> None:
        self._model = model
        self._tracer = tracer
        self._figures = numbers
        self._with_content = with_content

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        about = _asked(question)
        if self._with_content:
            about["gen_ai.input.messages"] = content.input_messages(question.history)
        name = f"chat {question.choice.name}"
        call = _Call(self._figures, question.choice)
        with call, within(self._tracer, name, SpanKind.CLIENT, about) as span:
            async with (
                self._model.ask(question) as events,
                aclosing(self._heard(events, span, call)) as heard,
            ):
                yield heard

    async def _heard(
        self, events: AsyncIterator[ModelEvent], span: Span, call: "_Call"
    ) -> AsyncGenerator[ModelEvent, None]:
        first = True
        async for event in events:
            if first:
                first = False
                seconds = call.first_chunk()
                span.set_attribute("gen_ai.client.operation.time_to_first_chunk", seconds)
            if isinstance(event, Answer):
                span.set_attributes(_answered(event))
                if self._with_content:
                    span.set_attribute("gen_ai.output.messages", content.output_messages(event))
                call.answered(event)
            yield event


class _Call:
    """The figures of one model call."""

    def __init__(self, numbers: Figures, choice: ModelChoice) -> None:
        self._figures = numbers
        self._labels = {
            "gen_ai__operation__name": "chat",
            "gen_ai__provider__name": _provider(choice),
            "gen_ai__request__model": choice.name,
        }
        self._began = perf_counter()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        error = {"error__type": kind.__name__} if kind else {}
        spent = perf_counter() - self._began
        self._figures.measure(figures.CALL_SECONDS, spent, **self._labels, **error)

    def first_chunk(self) -> float:
        seconds = perf_counter() - self._began
        self._figures.measure(figures.FIRST_CHUNK_SECONDS, seconds, **self._labels)
        return seconds

    def answered(self, answer: Answer) -> None:
        tokens = {"input": answer.usage.prompt_tokens, "output": answer.usage.completion_tokens}
        for kind, count in tokens.items():
            self._figures.measure(figures.TOKENS, count, **self._labels, gen_ai__token__type=kind)


class WatchedToolbox:
    def __init__(
        self, toolbox: Toolbox, tracer: Tracer, numbers: Figures, *, with_content: bool
    ) -> None:
        self._toolbox = toolbox
        self._tracer = tracer
        self._figures = numbers
        self._with_content = with_content

    def builtin(self) -> Sequence[BuiltinSpec]:
        return self._toolbox.builtin()

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        about: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": planned.call.id,
        }
        if self._with_content:
            about["gen_ai.tool.call.arguments"] = planned.call.arguments
        began = perf_counter()
        # As on record: what a call did that broke is not known.
        outcome: str = Outcome.UNKNOWN
        name = f"execute_tool {tool.name}"
        try:
            with within(self._tracer, name, SpanKind.INTERNAL, about) as span:
                returned = await self._toolbox.run(tool, planned, context)
                outcome = returned.outcome
                self._tell(span, returned)
                return returned
        except asyncio.CancelledError:
            outcome = Outcome.KILLED
            raise
        finally:
            self._figures.measure(figures.TOOL_SECONDS, perf_counter() - began, outcome=outcome)

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

    def _tell(self, span: Span, returned: ToolReturn) -> None:
        span.set_attribute("holdfast.tool.outcome", returned.outcome)
        if self._with_content:
            span.set_attribute("gen_ai.tool.call.result", content.result(returned))
        if returned.outcome is not Outcome.FINISHED:
            span.set_attribute("error.type", returned.outcome)
            span.set_status(StatusCode.ERROR)


def _asked(question: Question) -> dict[str, AttributeValue]:
    choice = question.choice
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider(choice),
        "gen_ai.request.model": choice.name,
        "gen_ai.request.max_tokens": choice.settings.max_output_tokens,
        "gen_ai.request.temperature": choice.settings.temperature,
    }
    return {name: value for name, value in told.items() if value is not None}


def _answered(answer: Answer) -> dict[str, AttributeValue]:
    return {"gen_ai.response.finish_reasons": [answer.finish], **usage(answer.usage)}


def _provider(choice: ModelChoice) -> str:
    return _PROVIDERS.get(choice.provider, choice.provider)
