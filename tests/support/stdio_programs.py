"""Small programs that speak MCP over stdio, well or badly, and a way to talk to them without a session."""

import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.shared.message import SessionMessage

from holdfast.adapters.mcp.failures import TransportFailed
from holdfast.core.mcp_servers import Endpoint, Transport

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

# Answers each request with what ``answer(method, params)`` returns; the code of a test comes before it.
_LOOP: Final = """
import json, os, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

if "answer" not in globals():
    def answer(method, params):
        return {"method": method, **params}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        say(id=request["id"], result=answer(request["method"], request.get("params", {})))
"""

# A server made with the SDK's own class.
SDK_SERVER: Final = """
from mcp.server import MCPServer

server = MCPServer("small")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

server.run("stdio")
"""


def make_endpoint(*words: str, name: str = "weather", **env: str) -> Endpoint:
    return Endpoint(
        server_id="mcp_server-1",
        server_name=name,
        transport=Transport.STDIO,
        command=words[0],
        args=words[1:],
        env=tuple(env.items()),
    )


def python_endpoint(source: str, *arguments: str, **env: str) -> Endpoint:
    """A program in Python. Its source is an argument: whoever it runs as may not read the files of the tests."""
    return make_endpoint(sys.executable, "-c", textwrap.dedent(source), *arguments, **env)


def answering_endpoint(source: str = "", *arguments: str, **env: str) -> Endpoint:
    """A program that answers requests; see above."""
    return python_endpoint(textwrap.dedent(source) + _LOOP, *arguments, **env)


class Talk:
    """Requests to a program, one after the other."""

    def __init__(self, streams: "TransportStreams") -> None:
        self._read, self._write = streams
        self._count = 0

    async def ask(self, method: str = "ping", **params: Any) -> dict[str, Any]:
        """The result. Raises the TransportFailed that comes instead of an answer."""
        await self.send(method, **params)
        return await self.receive()

    async def send(self, method: str, **params: Any) -> None:
        self._count += 1
        request = types.JSONRPCRequest(jsonrpc="2.0", id=self._count, method=method, params=params)
        await self._write.send(SessionMessage(request))

    async def receive(self) -> dict[str, Any]:
        item = await self._read.receive()
        if isinstance(item, Exception):
            raise item
        assert isinstance(item.message, types.JSONRPCResponse), item
        assert item.message.id == self._count
        return item.message.result

    async def wait_for_failure(self) -> TransportFailed:
        """Why there are no more messages."""
        item = await self._read.receive()
        assert isinstance(item, TransportFailed), item
        return item
