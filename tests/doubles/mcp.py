"""MCP servers of a test, without any connection: the test says which tools there are and what calls return."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.mcp_servers import Endpoint, RemoteTool
from holdfast.core.messages import Text
from holdfast.ports.mcp import OnProgress, RemoteResult


class McpCall(Struct, frozen=True):
    endpoint: Endpoint
    tool: str
    arguments: Mapping[str, Any]
    on_progress: OnProgress | None = None


Answer = Callable[[McpCall], RemoteResult]


def echo(call: McpCall) -> RemoteResult:
    return RemoteResult((Text(f"{call.tool}({dict(call.arguments)})"),))


class ScriptedMcp:
    """``tools`` has the tools of each server by the server's name. ``failures`` are raised first, in their order; ``gate``
    holds back every answer while it is not set. ``listed`` and ``calls`` are what was asked, ``forgotten`` the ids of the
    servers whose connections were closed."""

    def __init__(self, tools: Mapping[str, Sequence[RemoteTool]] | None = None) -> None:
        self.tools: dict[str, Sequence[RemoteTool]] = dict(tools or {})
        self.answer: Answer = echo
        self.failures: list[Exception] = []
        self.listed: list[Endpoint] = []
        self.calls: list[McpCall] = []
        self.forgotten: list[str] = []
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def list_tools(self, endpoint: Endpoint) -> Sequence[RemoteTool]:
        self.listed.append(endpoint)
        # Those that the server has when it is asked.
        tools = self.tools.get(endpoint.server_name, ())
        await self._wait()
        return tools

    async def call(
        self,
        endpoint: Endpoint,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
    ) -> RemoteResult:
        call = McpCall(endpoint, tool, arguments, on_progress)
        self.calls.append(call)
        await self._wait()
        return self.answer(call)

    async def forget(self, server_id: str) -> None:
        self.forgotten.append(server_id)

    async def aclose(self) -> None:
        pass

    async def _wait(self) -> None:
        self.asked.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.failures:
            raise self.failures.pop(0)
