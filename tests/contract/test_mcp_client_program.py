"""Random programs of calls, cancels, faults and changes: each call ends exactly once, in bounded time, with its own answer."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.support.mcp_clients import endpoint_of, mcp_tasks, open_client
from tests.support.mcp_server import McpAnswer, McpRequest, McpTestServer
from tests.support.waiting import eventually

from holdfast.adapters.mcp.client import PooledMcpClient
from holdfast.core.mcp_servers import Endpoint
from holdfast.core.messages import Text
from holdfast.errors import McpError
from holdfast.ports.mcp import RemoteResult

STEPS = 60
KINDS: list[dict[str, Any]] = [
    {},
    {"generation": "handshake"},
    {"generation": "handshake", "stateless": True},
    {"generation": "handshake", "transport": "sse"},
]

Call = tuple[str, "asyncio.Task[RemoteResult]"]


class Program:
    def __init__(self, seed: int, server: McpTestServer, client: PooledMcpClient) -> None:
        self._random = random.Random(seed)
        self._server = server
        self._client = client
        self.calls: list[Call] = []
        self._number = 0

    async def run(self) -> None:
        steps = [self._call] * 8 + [self._wait] * 4 + [self._cancel] * 4
        steps += [self._forget, self._restart, self._kill, self._refuse, self._turn, self._turn]
        for _ in range(STEPS):
            step = self._random.choice(steps)
            await step()
            for _ in range(self._random.randrange(4)):
                await asyncio.sleep(0)

    async def _call(self) -> None:
        self._start("echo", "text")

    async def _wait(self) -> None:
        self._start("wait", "name")

    def _start(self, tool: str, argument: str) -> None:
        self._number += 1
        key = f"{tool}-{self._number}"
        call = self._client.call(self._endpoint(), tool, {argument: key})
        self.calls.append((key, asyncio.create_task(call)))

    async def _cancel(self) -> None:
        if self.calls:
            self._random.choice(self.calls)[1].cancel()

    async def _forget(self) -> None:
        await self._client.forget("mcp_server-1")

    async def _restart(self) -> None:
        await asyncio.to_thread(self._server.restart)

    async def _kill(self) -> None:
        await asyncio.to_thread(self._server.kill)
        await self._turn()
        await asyncio.to_thread(self._server.start)

    async def _refuse(self) -> None:
        """The server answers a few requests with an error, then it is well again."""
        answers = [McpAnswer(self._random.choice([404, 500, 503]), b"no") for _ in range(3)]

        def refuse(request: McpRequest) -> McpAnswer | None:
            return answers.pop() if answers else None

        self._server.intercept = refuse

    async def _turn(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def _endpoint(self) -> Endpoint:
        headers = (("X-Token", self._random.choice("ab")),)
        agent = self._random.choice(["agent-1", "agent-2"])
        return endpoint_of(self._server, headers=headers, agent_id=agent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=["modern", "handshake", "stateless", "sse"])
@pytest.mark.parametrize("seed", range(5))
async def test_each_call_ends_once_and_with_its_own_answer(seed: int, kind: dict[str, Any]) -> None:
    async with McpTestServer(**kind) as server, open_client() as client:
        program = Program(seed, server, client)
        await program.run()
        server.answer()
        for key, _ in program.calls:
            server.release(key)
        await asyncio.wait([task for _, task in program.calls], timeout=40)
        for key, task in program.calls:
            assert task.done(), key
            if not task.cancelled() and task.exception() is None:
                expected = key if key.startswith("echo") else "It was released."
                assert task.result().content == (Text(expected),)
            elif not task.cancelled():
                assert isinstance(task.exception(), McpError)
        executed = Counter(
            next(iter(call.arguments.values())) for call in server.calls if call.arguments
        )
        assert not [key for key, count in executed.items() if count > 1]
        await client.aclose()
        await eventually(lambda: mcp_tasks() == [])
        await eventually(lambda: server.open_connections == 0)
