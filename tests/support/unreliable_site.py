"""A server whose store can fail, in the process of the test, and every way to send a message to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from httpx import ASGITransport, AsyncClient
from letta_client import AsyncLetta
from tests.doubles.unreliable_store import UnreliableStore
from tests.support.http_app import use_app
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.core.agents import Agent
from holdfast.core.runs import Run
from holdfast.ports.services import Limits
from holdfast.ports.store import Store

ADDRESS = "http://localhost:8283"


class Site:
    """A server whose store can fail, and its clients."""

    def __init__(self, rig: Rig, store: UnreliableStore, http: AsyncClient) -> None:
        self.rig = rig
        self.store = store
        self.http = http
        self.requests: list[str] = []
        http.event_hooks["request"].append(self._count)
        # As users have it: it sends again by itself, up to twice.
        self.letta = AsyncLetta(base_url=ADDRESS, http_client=http)

    async def _count(self, request: Any) -> None:
        if request.method == "POST":
            self.requests.append(request.url.path)

    async def runs(self, agent: Agent) -> list[dict[str, Any]]:
        found = await self.http.get("/v1/runs/", params={"agent_id": agent.id})
        listed: list[dict[str, Any]] = found.json()
        return listed

    async def wait_for_end(self, run_id: str) -> Run:
        run = await self.rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, run_id))
        return await self.rig.wait_for_end(run)

    async def conversation(self, agent: Agent) -> str:
        made = await self.http.post("/v1/conversations/", params={"agent_id": agent.id}, json={})
        return str(made.json()["id"])


@asynccontextmanager
async def open_unreliable_site(store: Store, busy_wait_seconds: float) -> AsyncIterator[Site]:
    unreliable = UnreliableStore(store)
    rig = Rig(unreliable, Limits(busy_wait_seconds=busy_wait_seconds))
    async with AsyncExitStack() as stack:
        app = stack.enter_context(use_app(rig.services))
        await stack.enter_async_context(rig.run_worker())
        transport = ASGITransport(app, raise_app_exceptions=False)
        http = AsyncClient(transport=transport, base_url=ADDRESS)
        yield Site(rig, unreliable, await stack.enter_async_context(http))


async def read_stream(stream: Any) -> list[Any]:
    return [item async for item in await stream]


async def send_json(site: Site, agent: Agent, **more: Any) -> Any:
    return await site.letta.agents.messages.create(agent.id, input="Hi", **more)


async def send_stream(site: Site, agent: Agent, **more: Any) -> Any:
    return await read_stream(site.letta.agents.messages.stream(agent.id, input="Hi", **more))


async def send_async(site: Site, agent: Agent, **more: Any) -> Any:
    return await site.letta.agents.messages.create_async(agent.id, input="Hi", **more)


async def send_background(site: Site, agent: Agent, **more: Any) -> Any:
    return await send_stream(site, agent, background=True, **more)


async def send_direct_json(site: Site, agent: Agent, **more: Any) -> Any:
    """To the agent's default thread by the path of conversations. The client takes every answer there for a stream."""
    raw = await site.letta.conversations.messages.with_raw_response.create(
        "default", agent_id=agent.id, input="Hi", streaming=False, **more
    )
    return json.loads(await raw.read())


async def send_direct_stream(site: Site, agent: Agent, **more: Any) -> Any:
    stream = site.letta.conversations.messages.create(
        "default", agent_id=agent.id, input="Hi", streaming=True, **more
    )
    return await read_stream(stream)


Send = Callable[..., Any]
WAITING_SENDS = (send_json, send_stream, send_direct_json, send_direct_stream)
ALL_SENDS = (*WAITING_SENDS, send_async, send_background)


async def hold_thread(site: Site, agent: Agent) -> "asyncio.Task[Any]":
    """A first message whose answer does not come before the gate is opened."""
    site.rig.model.gate.clear()
    first = asyncio.create_task(send_json(site, agent))
    await asyncio.wait_for(site.rig.model.asked.wait(), WAIT_SECONDS)
    return first
