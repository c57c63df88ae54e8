"""Calling the tools of MCP servers for agents: what a call returned, or how it failed, as a result for the model.

A call that did not reach the server was not started. One that was sent and has no answer may have had an effect: its outcome is
unknown. Only what the server itself calls an error is a failed call (tools-v1 §1.8).
"""

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.core import images
from holdfast.core.mcp_servers import Endpoint, McpServer
from holdfast.core.mcp_tools import EMPTY_RESPONSE, check_tool
from holdfast.core.messages import Image, Outcome, Text, ToolReturn, VisiblePart
from holdfast.core.tools import Tool
from holdfast.core.turn import STRIPPED_ARGUMENTS, PlannedCall
from holdfast.errors import (
    BackendError,
    CallerError,
    HoldfastError,
    InvalidArgument,
    McpCallLost,
    McpError,
    McpTimedOut,
    McpUnavailable,
    ToolError,
)
from holdfast.ports.mcp import RemoteResult
from holdfast.ports.services import Services
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import mcp_endpoints
from holdfast.usecases.mcp_endpoints import McpCaller

log = logging.getLogger(__name__)

# What providers accept of one image (5 MB as base64), and what a history can bear of one result.
MAX_IMAGE_BYTES: Final = 3_750_000
MAX_TOTAL_IMAGE_BYTES: Final = 10_000_000
MAX_IMAGES: Final = 20
# How long a failed call waits for the server's list of tools, and how long one list counts.
LISTING_SECONDS: Final = 5.0
LISTING_PAUSE_SECONDS: Final = 60.0

_MAY_HAVE_HAD_AN_EFFECT: Final = "Whether the call had an effect is unknown."


class McpCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        # When the tools of a server were last compared after a failed call, by server.
        self._compared_ns: dict[str, int] = {}

    async def call(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        """Call the tool at its server. Raises nothing but a cancellation, which cancels the call at the server too."""
        caller = McpCaller(
            organization_id=context.organization_id,
            user_id=context.user_id,
            agent_id=context.agent_id,
            values=context.environment,
            is_strict=True,
        )
        arguments = _own_arguments(tool, planned.arguments)
        try:
            _refuse_unsendable(arguments)
            server = await self._load_server(tool)

            async def action(endpoint: Endpoint) -> RemoteResult:
                return await self._services.mcp.call(
                    endpoint, tool.name, arguments, context.on_progress
                )

            result = await mcp_endpoints.use(self._services, server, caller, action)
        except HoldfastError as error:
            return _build_return(planned, *_describe_failure(tool.name, error))
        content = tuple(_bounded_content(result.content))
        if not result.is_error:
            return _build_return(planned, Outcome.FINISHED, *content)
        change = await self._find_change(server, tool, caller)
        notes = (Text(change),) if change else ()
        return _build_return(planned, Outcome.FAILED, *_join_texts((*content, *notes)))

    async def _load_server(self, tool: Tool) -> McpServer:
        server_id = tool.mcp_server_id
        if server_id is None:
            raise ToolError(f"Tool {tool.name} does not have a valid MCP server tag")
        return await self._services.store.read(
            lambda tx: tx.mcp_servers.get(tool.organization_id, server_id)
        )

    async def _find_change(self, server: McpServer, tool: Tool, caller: McpCaller) -> str | None:
        """A sentence about how the tool differs from what the server has now. It is looked for once a minute."""
        if not self._is_due(server.id):
            return None
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                listed = await mcp_endpoints.use(
                    self._services, server, caller, self._services.mcp.list_tools
                )
        except (HoldfastError, TimeoutError):
            # The failed call has its own text.
            return None
        remote = next((item for item in listed if item.name == tool.name), None)
        if remote is None:
            change = "no longer offers this tool"
        elif _parameters(check_tool(remote).json_schema) != _parameters(tool.json_schema):
            change = "has changed the parameters of this tool"
        else:
            return None
        fields = {"server": server.name, "tool": tool.name, "change": change}
        log.warning("mcp.tool_changed", extra={**fields, "advice": "refresh the MCP server"})
        return (
            f"The MCP server {server.name} {change} since its tools were last read. "
            "Somebody must refresh it; until then, calls may go on failing."
        )

    def _is_due(self, server_id: str) -> bool:
        now = self._services.clock.monotonic_ns()
        pause_ns = LISTING_PAUSE_SECONDS * 1e9
        self._compared_ns = {
            key: compared_ns
            for key, compared_ns in self._compared_ns.items()
            if now - compared_ns < pause_ns
        }
        return self._compared_ns.setdefault(server_id, now) == now


def _own_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Without what older V1 loops added to every call."""
    known = _parameters(tool.json_schema).get("properties")
    known = known if isinstance(known, dict) else {}
    return {
        key: value
        for key, value in arguments.items()
        if key not in STRIPPED_ARGUMENTS or key in known
    }


def _refuse_unsendable(arguments: Mapping[str, Any]) -> None:
    """JSON has no NaN and no infinity: the server would get null instead."""
    try:
        json.dumps(arguments, allow_nan=False)
    except ValueError as error:
        raise InvalidArgument(
            f"The arguments cannot be sent: {error}. Nothing was sent to the MCP server."
        ) from None


def _parameters(json_schema: Mapping[str, Any]) -> dict[str, Any]:
    parameters = json_schema.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _describe_failure(tool: str, error: HoldfastError) -> tuple[Outcome, Text]:
    prefix = f"Error executing function {tool}: "
    match error:
        case McpTimedOut(has_begun=True) | McpCallLost():
            return Outcome.UNKNOWN, Text(f"{str(error).rstrip('.')}. {_MAY_HAVE_HAD_AN_EFFECT}")
        case McpTimedOut():
            text = f"{prefix}LettaMCPConnectionError: INTERNAL_SERVER_ERROR: {error}"
        case McpUnavailable(why=why):
            text = f"{prefix}LettaMCPConnectionError: INTERNAL_SERVER_ERROR: {why}"
        case McpError():
            return Outcome.FAILED, Text(f"{prefix}{error}")
        case ToolError():
            text = f"{prefix}ValueError: {error}"
        case CallerError():
            text = f"{prefix}{error}"
        case BackendError():
            text = f"This tool was not started: {error}"
        case _:
            raise error
    return Outcome.NOT_STARTED, Text(text)


def _bounded_content(parts: Sequence[VisiblePart]) -> Iterator[VisiblePart]:
    """The parts in their order, with images that models accept, and texts joined with one blank."""
    count, total = 0, 0
    shown: list[VisiblePart] = []
    for part in parts:
        if isinstance(part, Image):
            data = _decode(part)
            kind = images.detect_media_type(data)
            fits = len(data) <= MAX_IMAGE_BYTES and total + len(data) <= MAX_TOTAL_IMAGE_BYTES
            if kind is None or not fits or count == MAX_IMAGES:
                # A provider would refuse it with this request and every later one of the thread.
                shown.append(Text(f"[image {part.media_type[:100]}, {len(data)} bytes]"))
                continue
            count, total = count + 1, total + len(data)
            shown.append(Image(kind, part.data))
        else:
            shown.append(part)
    return _join_texts(shown or [Text(EMPTY_RESPONSE)])


def _decode(image: Image) -> bytes:
    try:
        return b64decode(image.data, validate=True)
    except ValueError:
        return b""


def _join_texts(parts: Sequence[VisiblePart]) -> Iterator[VisiblePart]:
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
            continue
        if texts:
            yield Text(" ".join(texts))
            texts = []
        yield part
    if texts:
        yield Text(" ".join(texts))


def _build_return(planned: PlannedCall, outcome: Outcome, *content: VisiblePart) -> ToolReturn:
    return ToolReturn(
        call_id=planned.call.id, name=planned.call.name, outcome=outcome, content=content
    )
