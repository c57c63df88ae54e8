"""The load of a soak: everything that clients do, well and badly, again and again.

Each story has an agent of its own, so that no history grows. Every third agent is kept: its rows stay.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from tests.soak.tools import NEEDS_APPROVAL, SOURCES

MODEL: Final = "openai/gpt-4o-mini"
REQUEST_SECONDS: Final = 60.0
# So many events of a stream are read before it is dropped.
_READ_EVENTS: Final = 5
_TURNS: Final = 3
_NOBODY: Final = "00000000-0000-4000-8000-000000000000"
_KEPT_SURPRISES: Final = 10


@dataclass
class Record:
    """How often each story was played, and what nobody expected."""

    played: Counter[str] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    surprise_count: int = 0

    def add_surprise(self, text: str) -> None:
        self.surprise_count += 1
        if len(self.surprises) < _KEPT_SURPRISES:
            self.surprises.append(text)


class Surprise(Exception):
    """The server answered what it should not have."""


class Client:
    """A client with one agent at a time."""

    def __init__(
        self, http: httpx.AsyncClient, tool_ids: Sequence[str], daemon_argument: str
    ) -> None:
        self.http = http
        self.daemon_argument = daemon_argument
        self._tool_ids = tool_ids

    async def call(
        self, method: str, path: str, body: Any = None, *, expected: Sequence[int] = (200,)
    ) -> Any:
        response = await self.http.request(method, path, json=body)
        if response.status_code not in expected:
            raise Surprise(f"{method} {path}: {response.status_code} {response.text[:200]}")
        return response.json() if response.content else None

    async def create_agent(self) -> str:
        blocks = [{"label": "human", "value": "x" * 500}]
        body = {"model": MODEL, "tool_ids": list(self._tool_ids), "memory_blocks": blocks}
        return str((await self.call("POST", "/v1/agents/", body))["id"])

    async def say(self, agent_id: str, text: str, *, expected: Sequence[int] = (200,)) -> Any:
        return await self.call(
            "POST", f"/v1/agents/{agent_id}/messages", {"input": text}, expected=expected
        )

    @asynccontextmanager
    async def stream(self, path: str, body: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The events of a stream; leaving early drops the connection."""
        async with self.http.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                await response.aread()
                raise Surprise(f"POST {path}: {response.status_code} {response.text[:200]}")
            yield _events(response)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


async def _read_some(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    """The last event of those that were read."""
    last: dict[str, Any] = {}
    count = 0
    async for event in events:
        last = event if "run_id" in event else last
        count += 1
        if count == _READ_EVENTS:
            break
    return last


async def _send(client: Client, agent_id: str) -> None:
    for number in range(_TURNS):
        await client.say(agent_id, f"hello {number}")


async def _read_stream(client: Client, agent_id: str) -> None:
    body = {"input": "hello", "stream_tokens": True}
    async with client.stream(f"/v1/agents/{agent_id}/messages/stream", body) as events:
        async for _ in events:
            pass


async def _drop_stream(client: Client, agent_id: str) -> None:
    """The run goes on without its reader; the next message waits for it."""
    body = {"input": "talk", "stream_tokens": True}
    async with client.stream(f"/v1/agents/{agent_id}/messages/stream", body) as events:
        await _read_some(events)
    await client.say(agent_id, "hello")


async def _drop_and_cancel(client: Client, agent_id: str) -> None:
    body = {"input": "talk", "stream_tokens": True, "on_disconnect": "cancel"}
    async with client.stream(f"/v1/agents/{agent_id}/messages/stream", body) as events:
        await _read_some(events)


async def _cancel(client: Client, agent_id: str) -> None:
    body = {"input": "talk", "stream_tokens": True}
    async with client.stream(f"/v1/agents/{agent_id}/messages/stream", body) as events:
        await _read_some(events)
        # 409: on a busy machine the run may have ended meanwhile.
        path = f"/v1/agents/{agent_id}/messages/cancel"
        await client.call("POST", path, {}, expected=(200, 409))
        async for _ in events:
            pass


async def _resume_background_stream(client: Client, agent_id: str) -> None:
    body = {"input": "talk", "stream_tokens": True, "background": True}
    async with client.stream(f"/v1/agents/{agent_id}/messages/stream", body) as events:
        last = await _read_some(events)
    if "run_id" not in last:
        raise Surprise("a background stream named no run")
    resumed = {"starting_after": last.get("seq_id", 0)}
    async with client.stream(f"/v1/runs/{last['run_id']}/stream", resumed) as events:
        async for _ in events:
            pass


async def _send_async(client: Client, agent_id: str) -> None:
    path = f"/v1/agents/{agent_id}/messages/async"
    run = await client.call("POST", path, {"input": "call work quietly"})
    async with client.stream(f"/v1/runs/{run['id']}/stream", {}) as events:
        async for _ in events:
            pass


def _call_tool(tool: str) -> "Story":
    async def play(client: Client, agent_id: str) -> None:
        argument = client.daemon_argument if tool == "daemon" else "text"
        await client.say(agent_id, f"call {tool} {argument}")

    return play


def _decide(*, approve: bool) -> "Story":
    async def play(client: Client, agent_id: str) -> None:
        reply = await client.say(agent_id, f"call {NEEDS_APPROVAL} please")
        call_id = reply["messages"][-1]["tool_call"]["tool_call_id"]
        decision = {"type": "approval", "tool_call_id": call_id, "approve": approve}
        body = {"messages": [{"type": "approval", "approvals": [decision]}]}
        await client.call("POST", f"/v1/agents/{agent_id}/messages", body)

    return play


async def _leave_approval_open(client: Client, agent_id: str) -> None:
    await client.say(agent_id, f"call {NEEDS_APPROVAL} please")
    await client.say(agent_id, "hello", expected=(409,))


async def _meet_failing_model(client: Client, agent_id: str) -> None:
    await client.say(agent_id, "fail", expected=(500,))
    await client.say(agent_id, "break", expected=(500, 503))


async def _send_nonsense(client: Client, agent_id: str) -> None:
    path = f"/v1/agents/{agent_id}/messages"
    await client.call("POST", path, {}, expected=(422,))
    await client.call("POST", path, {"input": 7}, expected=(422,))
    await client.call("GET", f"/v1/agents/agent-{_NOBODY}", expected=(404,))
    await client.call("GET", "/v1/agents/nonsense", expected=(422,))
    await client.call("PUT", "/v1/nowhere", expected=(404,))
    broken = await client.http.post(path, content=b'{"input": "a', headers=_JSON)
    if broken.status_code != 422:
        raise Surprise(f"a broken body: {broken.status_code}")


async def _read_lists(client: Client, agent_id: str) -> None:
    for path in (f"/v1/agents/{agent_id}/messages", "/v1/runs/?limit=20", "/v1/steps/?limit=20"):
        await client.call("GET", path)
    await client.call("PATCH", f"/v1/agents/{agent_id}", {"description": "changed"})


_JSON: Final = {"content-type": "application/json"}

Story = Callable[[Client, str], Awaitable[None]]
# A story and its weight. A hanging tool takes as long as its timeout, and the machine waits meanwhile.
STORIES: Final[dict[str, tuple[Story, int]]] = {
    "send": (_send, 6),
    "read a stream": (_read_stream, 6),
    "drop a stream": (_drop_stream, 4),
    "drop and cancel": (_drop_and_cancel, 4),
    "cancel": (_cancel, 4),
    "resume a background stream": (_resume_background_stream, 4),
    "send without waiting": (_send_async, 4),
    "grant": (_decide(approve=True), 3),
    "deny": (_decide(approve=False), 3),
    "leave an approval open": (_leave_approval_open, 2),
    **{
        f"tool: {tool}": (_call_tool(tool), 1 if tool == "hang" else 2)
        for tool in SOURCES
        if tool != NEEDS_APPROVAL
    },
    "a failing model": (_meet_failing_model, 2),
    "nonsense": (_send_nonsense, 3),
    "lists": (_read_lists, 2),
}


async def create_tools(http: httpx.AsyncClient) -> list[str]:
    created = []
    for name, source in SOURCES.items():
        body = {"source_code": source, "default_requires_approval": name == NEEDS_APPROVAL}
        response = await http.put("/v1/tools/", json=body)
        response.raise_for_status()
        created.append(response.json()["id"])
    return created


async def play_stories(
    client: Client, record: Record, chance: random.Random, stop: asyncio.Event
) -> None:
    """One story after the other until ``stop``, each whole."""
    names = list(STORIES)
    weights = [weight for _, weight in STORIES.values()]
    while not stop.is_set():
        (name,) = chance.choices(names, weights)
        story, _ = STORIES[name]
        try:
            agent_id = await client.create_agent()
            await story(client, agent_id)
            if chance.random() < 2 / 3:
                await client.call("DELETE", f"/v1/agents/{agent_id}")
        except (Surprise, httpx.HTTPError, KeyError) as error:
            record.add_surprise(f"{name}: {type(error).__name__}: {error}")
        record.played[name] += 1
