"""The model layer alone, on every wire and compared with raw HTTP: CPU time per answer and per token.

It runs in this process, without a server, run or store. The floor sends the same request to the same provider on an
open connection and reads the response without parsing it. All values are CPU time: the elapsed time is the
provider's.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bench.client import Client
from bench.context import BenchContext
from bench.floor import Work
from bench.measurements import Measurement, median
from bench.processes import open_client
from bench.provider import words
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelChoice
from holdfast.ports.model import Question

TOKENS = 500
# Slow enough that each token is passed on before the next one arrives.
_APART_SECONDS = 0.002

_CHAT, _RESPONSES = "chat completions", "responses"
_MESSAGES, _CONTENT = "messages", "generateContent"
_HANDLES = {
    _CHAT: "openai/gpt-4o-mini",
    _RESPONSES: "openai/gpt-5",
    _MESSAGES: "anthropic/claude-haiku-4-5",
    _CONTENT: "google_ai/gemini-2.5-flash",
}


async def measure(context: BenchContext) -> list[Measurement]:
    router = ModelRouter(_settings(context.provider.address))
    await router.warm_up()
    async with open_client(context.provider.address) as client:
        measurements = [
            measurement
            for wire in _HANDLES
            for measurement in await _measure_wire(context, wire, router, client)
        ]
    await router.aclose()
    return measurements


async def _measure_wire(
    context: BenchContext, wire: str, router: ModelRouter, client: Client
) -> list[Measurement]:
    answer, tokens = words(1), words(TOKENS, _APART_SECONDS)
    count, streams = context.counts.turns, context.counts.single_streams
    return [
        Measurement(
            what=f"model layer, {wire}: CPU of one answer",
            unit="ms",
            value=await _cpu_ms(partial(_ask_router, router, wire, answer), count),
            floor=await _cpu_ms(partial(_ask_provider, client, wire, answer), count),
        ),
        Measurement(
            what=f"  of {TOKENS} tokens that come singly",
            unit="ms",
            value=await _cpu_ms(partial(_ask_router, router, wire, tokens), streams),
            floor=await _cpu_ms(partial(_ask_provider, client, wire, tokens), streams),
        ),
    ]


async def _ask_router(router: ModelRouter, wire: str, prompt: str) -> None:
    choice = ModelChoice(handle=_HANDLES[wire], context_window=128_000)
    history = (_row(Role.SYSTEM, "You are terse."), _row(Role.USER, prompt))
    async with router.ask(Question(choice=choice, history=history)) as events:
        async for _ in events:
            pass


async def _ask_provider(client: Client, wire: str, prompt: str) -> None:
    path, body = _request(wire, prompt)
    received: list[bytes] = []
    await client.stream(path, body, received.append)


async def _cpu_ms(work: Work, count: int) -> float:
    """The CPU time of one in this process, after warm-up."""
    for _ in range(min(count, 5)):
        await work()
    spent: list[float] = []
    for _ in range(count):
        before = time.process_time()
        await work()
        spent.append((time.process_time() - before) * 1000)
    return median(spent)


def _request(wire: str, prompt: str) -> tuple[str, Mapping[str, Any]]:
    message = {"role": "user", "content": prompt}
    name = _HANDLES[wire].partition("/")[2]
    streamed = {"model": name, "stream": True}
    match wire:
        case "chat completions":
            return "/v1/chat/completions", {**streamed, "messages": [message]}
        case "responses":
            return "/v1/responses", {**streamed, "input": [message]}
        case "messages":
            return "/v1/messages", {**streamed, "max_tokens": 4096, "messages": [message]}
        case _:
            path = f"/v1beta/models/{name}:streamGenerateContent?alt=sse"
            return path, {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}


def _settings(address: str) -> ProviderSettings:
    return ProviderSettings(
        {
            "openai": {"base_url": f"{address}/v1"},
            "anthropic": {"base_url": address},
            "google_ai": {"base_url": address},
        }
    )


def _row(role: Role, text: str) -> Message:
    return Message(
        id="message-1",
        agent_id="agent-1",
        thread_id="agent-1",
        role=role,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        content=(Text(text),),
    )
