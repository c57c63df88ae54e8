"""Streams for the rows: one message to an agent, or to the bare provider, read to the end."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from bench.client import Client
from bench.context import new_agent
from bench.processes import open_client
from bench.provider import paced_words, started_at
from bench.stream_recorder import ProviderStreamRecorder, StreamRecorder

CALL_PATH = "/v1/chat/completions"
_numbers = itertools.count(1)

ReadStream: TypeAlias = Callable[[str], Awaitable[StreamRecorder]]


def new_name() -> str:
    """A name under which to ask the provider about an answer later."""
    return f"answer-{next(_numbers)}"


def stream_path(agent_id: str) -> str:
    return f"/v1/agents/{agent_id}/messages/stream"


def stream_request(text: str, **fields: Any) -> dict[str, Any]:
    """A send that streams tokens."""
    return {"messages": [{"role": "user", "content": text}], "stream_tokens": True} | fields


def provider_request(text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "gpt-4o-mini", "messages": messages, "stream": True}


async def read_stream(client: Client, agent_id: str, text: str) -> StreamRecorder:
    recorder = StreamRecorder()
    await client.stream(stream_path(agent_id), stream_request(text), recorder)
    return recorder


async def read_provider_stream(provider: Client, text: str) -> StreamRecorder:
    """The floor: the provider's stream over raw HTTP."""
    recorder = ProviderStreamRecorder()
    await provider.stream(CALL_PATH, provider_request(text), recorder)
    return recorder


async def lags_ms(
    provider: Client, read: ReadStream, count: int, delay_seconds: float
) -> list[float]:
    """The lag of one stream behind the provider, word by word."""
    name = new_name()
    recorder = check_complete(await read(paced_words(name, count, delay_seconds)), count)
    began = msgspec.json.decode(await ask_provider(provider, started_at(name)), type=float)
    return recorder.lags_ms(began, delay_seconds)


async def create_agents(address: str, count: int) -> list[str]:
    async with open_client(address) as client:
        return [await new_agent(client) for _ in range(count)]


async def ask_provider(provider: Client, question: str) -> str:
    """The provider's immediate answer to a query of the bench."""
    answer = await provider.post(CALL_PATH, provider_request(question) | {"stream": False})
    return str(answer["choices"][0]["message"]["content"])


def check_complete(recorder: StreamRecorder, count: int) -> StreamRecorder:
    if len(recorder.words) != count or recorder.done_at is None:
        raise RuntimeError(f"The stream brought {len(recorder.words)} words, not {count}.")
    return recorder
