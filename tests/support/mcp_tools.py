"""What the MCP server of the tests offers, and its record of the calls: the same over HTTP and over stdio.

Tests may add, change and remove tools while the server runs. The tools that are there at first:

- ``echo(text)``, ``add(a, b)`` (a text and structured content), ``fail(message)`` (isError), ``crash`` (a JSON-RPC error)
- ``nothing``, ``picture`` (PNG), ``sound``, ``document`` (an embedded text), ``link``, ``structured`` (only that), ``texts``
- ``count(steps)`` reports progress; ``wait(name)`` ends when the test calls ``release(name)``
- ``large(megabytes)``, and ``ask``, which wants an answer of a person (the client declares that it cannot)
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast.testing.moments import Moment

MEGABYTE = 1024 * 1024
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

Context = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class McpCall:
    """One call as the server saw it. ``state``: running, finished, failed or cancelled."""

    tool: str
    arguments: dict[str, Any]
    headers: Mapping[str, str]
    protocol_version: str
    request_id: str | int | None
    state: str = "running"
    begun: Moment = field(default_factory=lambda: Moment("the call's begin"))
    ended: Moment = field(default_factory=lambda: Moment("the call's end"))
    # Of a cancelled one: ``notification``, ``stream`` (its stream was closed), or ``stop`` (the server was stopped).
    cancelled_by: str | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.state == "cancelled"


Handler = Callable[["ToolSet", Context, dict[str, Any]], Awaitable[types.CallToolResult]]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    listing: types.Tool
    run: Handler


class ToolSet:
    """The tools of one server, and what was called. Its methods may be used from any thread."""

    def __init__(self) -> None:
        self.tools: dict[str, OfferedTool] = {}
        self.calls: list[McpCall] = []
        # How many tools a page of tools/list has; None: all.
        self.page_size: int | None = None
        self.cancelled_requests: set[str | int] = set()
        self.is_stopping = False
        self._gates: dict[str, Moment] = {}
        _add_first_tools(self)

    def add_tool(
        self,
        name: str,
        run: Handler | None = None,
        *,
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        **annotations: Any,
    ) -> None:
        """Add a tool, or replace it. Annotations as on the wire: ``readOnlyHint=True``. Without ``run`` it returns the
        text ``<name> was called``."""
        listing: dict[str, Any] = {"name": name, "inputSchema": input_schema or _NO_ARGUMENTS}
        if description is not None:
            listing["description"] = description
        if annotations:
            listing["annotations"] = annotations
        self.tools[name] = OfferedTool(
            types.Tool.model_validate(listing), run or _return_text(f"{name} was called")
        )

    def remove_tool(self, name: str) -> None:
        del self.tools[name]

    def release(self, name: str = "") -> None:
        """Let the calls of ``wait(name)`` end, those of the future too."""
        self.gate(name).happen()

    def gate(self, name: str) -> Moment:
        return self._gates.setdefault(name, Moment(f"the release of {name!r}"))

    def calls_of(self, tool: str) -> list[McpCall]:
        return [call for call in list(self.calls) if call.tool == tool]

    def build_server(self) -> "Server[Any]":
        return Server(
            "weather", version="1.0", on_list_tools=self._list_tools, on_call_tool=self._call_tool
        )

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context
        listings = [tool.listing for tool in list(self.tools.values())]
        start = int(params.cursor) if params is not None and params.cursor else 0
        end = len(listings) if self.page_size is None else start + self.page_size
        return types.ListToolsResult(
            tools=listings[start:end], next_cursor=str(end) if end < len(listings) else None
        )

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        headers = dict(context.request.headers) if context.request is not None else {}
        arguments = params.arguments or {}
        call = McpCall(
            params.name, arguments, headers, context.protocol_version, context.request_id
        )
        self.calls.append(call)
        call.begun.happen()
        try:
            result = await self._find_tool(params.name).run(self, context, arguments)
            call.state = "finished"
        except asyncio.CancelledError:
            call.state, call.cancelled_by = "cancelled", self._find_canceller(call)
            raise
        except BaseException:
            call.state = "failed"
            raise
        finally:
            call.ended.happen()
        return result

    def _find_tool(self, name: str) -> OfferedTool:
        if name not in self.tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
        return self.tools[name]

    def _find_canceller(self, call: McpCall) -> str:
        if self.is_stopping:
            return "stop"
        return "notification" if call.request_id in self.cancelled_requests else "stream"


def text_result(text: str, **fields: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], **fields)


def _return_text(text: str) -> Handler:
    async def run(
        tools: ToolSet, context: Context, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        return text_result(text)

    return run


def _return_content(*content: types.ContentBlock, **fields: Any) -> Handler:
    async def run(
        tools: ToolSet, context: Context, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        return types.CallToolResult(content=list(content), **fields)

    return run


async def _echo(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    return text_result(str(arguments.get("text", "")))


async def _add(tools: ToolSet, context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    total = arguments["a"] + arguments["b"]
    return text_result(str(total), structured_content={"result": total})


async def _fail(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    return text_result(arguments.get("message", "It failed."), is_error=True)


async def _crash(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    raise MCPError(types.INTERNAL_ERROR, "The server has no more paper.")


async def _count(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    steps = arguments.get("steps", 3)
    for step in range(1, steps + 1):
        await context.session.report_progress(step, steps, f"step {step}")
    return text_result(f"{steps} steps")


async def _wait(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    await tools.gate(arguments.get("name", "")).wait(None)
    return text_result("It was released.")


async def _large(
    tools: ToolSet, context: Context, arguments: dict[str, Any]
) -> types.CallToolResult:
    return text_result("x" * int(arguments.get("megabytes", 1) * MEGABYTE))


async def _ask(tools: ToolSet, context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    schema: types.ElicitRequestedSchema = {"type": "object", "properties": {}}
    if context.session.can_send_request:
        question = context.session.elicit_form("Are you sure?", schema, context.request_id)
        answer = await question
        return text_result(answer.action)
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return text_result("There is nobody to ask.", is_error=True)
    params = types.ElicitRequestFormParams(message="Are you sure?", requested_schema=schema)
    return types.InputRequiredResult(  # type: ignore[return-value]  # the modern generation's way to ask
        input_requests={"sure": types.ElicitRequest(params=params)}
    )


def _object(**properties: str) -> dict[str, Any]:
    """The schema of an object; properties whose name ends in ``_`` are not required."""
    return {
        "type": "object",
        "properties": {name.rstrip("_"): {"type": kind} for name, kind in properties.items()},
        "required": [name for name in properties if not name.endswith("_")],
    }


def _add_first_tools(tools: ToolSet) -> None:
    encoded = base64.b64encode(PNG).decode()
    note = types.TextResourceContents(uri="note://1", mime_type="text/plain", text="A note.")
    tools.add_tool(
        "echo", _echo, description="Return the text.", input_schema=_object(text="string")
    )
    tools.add_tool(
        "add",
        _add,
        description="Add.",
        input_schema=_object(a="integer", b="integer"),
        readOnlyHint=True,
    )
    tools.add_tool("fail", _fail, input_schema=_object(message_="string"))
    tools.add_tool("crash", _crash, destructiveHint=True)
    tools.add_tool("nothing", _return_content())
    tools.add_tool(
        "texts",
        _return_content(*(types.TextContent(text=text) for text in ("one", "two", "three"))),
    )
    tools.add_tool(
        "picture", _return_content(types.ImageContent(data=encoded, mime_type="image/png"))
    )
    tools.add_tool(
        "sound", _return_content(types.AudioContent(data=encoded, mime_type="audio/wav"))
    )
    tools.add_tool("document", _return_content(types.EmbeddedResource(resource=note)))
    tools.add_tool("link", _return_content(types.ResourceLink(uri="note://2", name="Second note")))
    tools.add_tool("structured", _return_content(structured_content={"degrees": 21, "sky": "blue"}))
    tools.add_tool("count", _count, input_schema=_object(steps_="integer"))
    tools.add_tool("wait", _wait, input_schema=_object(name_="string"))
    tools.add_tool("large", _large, input_schema=_object(megabytes_="number"))
    tools.add_tool("ask", _ask)
