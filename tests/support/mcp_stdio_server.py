"""The MCP server of the tests over stdio: ``python -m tests.support.mcp_stdio_server --folder PATH``.

It appends what happens to ``events.jsonl`` in the folder: ``{"event": "started", "pid": …}``, ``{"event": "called", "tool": …,
"arguments": …}`` and ``{"event": "ended", "tool": …, "state": "finished" | "failed" | "cancelled"}``. A call of ``wait(name)`` ends
when the folder has a file ``release-<name>``. ``--garbage`` prints lines that are not JSON to standard output, ``--stubborn``
ignores the end of its input and SIGTERM.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from tests.support.mcp_tools import Context, ToolSet
from tests.support.waiting import eventually

_A_DAY_SECONDS = 86_400.0


class _StdioTools(ToolSet):
    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._folder = folder
        self.add_tool("environment", _list_environment, description="The environment as JSON.")
        self.add_tool("pid", _tell_pid)
        self.add_tool("die", _die)

    def tell(self, **event: Any) -> None:
        if self._folder is not None:
            with (self._folder / "events.jsonl").open("a") as log:
                log.write(json.dumps(event) + "\n")

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self.tell(event="called", tool=params.name, arguments=params.arguments)
        releasing = asyncio.create_task(self._watch_release(params.arguments or {}))
        try:
            return await super()._call_tool(context, params)
        finally:
            releasing.cancel()
            states = [call.state for call in self.calls if call.request_id == context.request_id]
            self.tell(event="ended", tool=params.name, state=states[-1])

    async def _watch_release(self, arguments: dict[str, Any]) -> None:
        if self._folder is None:
            return
        name = str(arguments.get("name", ""))
        path = self._folder / f"release-{name}"
        await eventually(path.exists, seconds=_A_DAY_SECONDS)
        self.release(name)


async def _list_environment(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    text = json.dumps(dict(os.environ))
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def _tell_pid(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str(os.getpid()))])


async def _die(tools: ToolSet, context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    os._exit(3)


async def _serve(options: argparse.Namespace) -> None:
    tools = _StdioTools(options.folder)
    tools.tell(event="started", pid=os.getpid())
    server = tools.build_server()
    async with stdio_server() as (read, write):
        if options.generation == "handshake":
            await serve_loop(server, read, write, lifespan_state={})
        else:
            await server.run(read, write, server.create_initialization_options())
    if options.stubborn:
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generation", choices=("modern", "handshake"), default="modern")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--garbage", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    options = parser.parse_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.garbage:
        sys.stdout.write("Starting the server …\n{not json\n\n")
        sys.stdout.flush()
    asyncio.run(_serve(options))


if __name__ == "__main__":
    main()
