"""Streams as rows ask for them: one message to one agent, or to the bare provider, read to its end."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from bench.client import Client
from bench.hearing import BareHearing, Hearing
from bench.processes import connected
from bench.provider import begun_at, paced
from bench.stage import new_agent

CALL_PATH = "/v1/chat/completions"
_numbers = itertools.count(1)

Hear: TypeAlias = Callable[[str], Awaitable[Hearing]]


def new_name() -> str:
    """A name under which to ask the provider about an answer later."""
    return f"answer-{next(_numbers)}"


def stream_path(agent_id: str) -> str:
    return f"/v1/agents/{agent_id}/messages/stream"


def wish(text: str, **fields: Any) -> dict[str, Any]:
    """A send that streams tokens."""
    return {"messages": [{"role": "user", "content": text}], "stream_tokens": True} | fields


def bare_wish(text: str) -> dict[str, Any]:
    said = [{"role": "user", "content": text}]
    return {"model": "gpt-4o-mini", "messages": said, "stream": True}


async def heard(client: Client, agent_id: str, text: str) -> Hearing:
    hearing = Hearing()
    await client.stream(stream_path(agent_id), wish(text), hearing)
    return hearing


async def heard_bare(provider: Client, text: str) -> Hearing:
    """The floor: the provider's stream over raw HTTP."""
    hearing = BareHearing()
    await provider.stream(CALL_PATH, bare_wish(text), hearing)
    return hearing


async def lags_ms(provider: Client, hear: Hear, count: int, delay_seconds: float) -> list[float]:
    """How far one stream of so many words falls behind the provider, word by word."""
    name = new_name()
    hearing = whole(await hear(paced(name, count, delay_seconds)), count)
    began = msgspec.json.decode(await asked(provider, begun_at(name)), type=float)
    return hearing.lags_ms(began, delay_seconds)


async def agents(address: str, count: int) -> list[str]:
    async with connected(address) as client:
        return [await new_agent(client) for _ in range(count)]


async def asked(provider: Client, question: str) -> str:
    """What the provider says to a question of ours, at once."""
    answer = await provider.post(CALL_PATH, bare_wish(question) | {"stream": False})
    return str(answer["choices"][0]["message"]["content"])


def whole(hearing: Hearing, count: int) -> Hearing:
    if len(hearing.words) != count or hearing.done_at is None:
        raise RuntimeError(f"The stream brought {len(hearing.words)} words, not {count}.")
    return hearing
