"""The protocol's requests, answered from the tables of tools and resources. Only for those who have loaded the SDK."""

import logging
from typing import Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from holdfast import __version__
from holdfast.errors import HoldfastError, NotFound, PendingApproval, ServerStopping
from holdfast.http.error_status import ERROR_STATUS, public_text
from holdfast.http.mcp.caller import Answer, Caller
from holdfast.http.mcp.resources import KINDS, MEDIA_TYPE, list_resources, read_resource
from holdfast.http.mcp.summaries import cut
from holdfast.http.mcp.tools.table import TOOLS
from holdfast.http.mcp.tools.tool import Tool

_INSTRUCTIONS: Final = (
    "Agents that live on a Holdfast server, with memory and tools of their own. list_agents shows who is there, "
    "send_message talks to one of them, search_memory searches what it remembers. Tools of agents may wait for a person's "
    "approval: list_approvals and decide_approval."
)
# Where clients that want it find the id of the run that an answer is about.
RUN_ID_KEY: Final = "holdfast/run_id"

_log = logging.getLogger(__name__)

_Context = ServerRequestContext[Caller]


async def _list_tools(
    _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_describe_tool(tool) for tool in TOOLS.values()])


def _describe_tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.hints.reads_only,
            destructive_hint=tool.hints.destroys,
            idempotent_hint=tool.hints.may_repeat,
            open_world_hint=tool.hints.is_open,
        ),
    )


async def _call_tool(
    context: _Context, params: types.CallToolRequestParams
) -> types.CallToolResult:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {cut(params.name, 100)}")
    try:
        answer = await tool.call(context.lifespan_context, params.arguments or {})
    except HoldfastError as error:
        log_failure(error)
        answer = Answer(text=_describe_error(error), is_error=True)
    return types.CallToolResult(
        content=[types.TextContent(text=answer.text)],
        structured_content=answer.structured,
        is_error=answer.is_error,
        _meta={RUN_ID_KEY: answer.run_id} if answer.run_id else None,
    )


def _describe_error(error: HoldfastError) -> str:
    """The error's text for callers, and what helps in terms of these tools."""
    text = cut(public_text(error))
    if not isinstance(error, PendingApproval) or not error.calls:
        return text
    waiting = ", ".join(f"{name} ({call_id})" for call_id, name in error.calls)
    return f"{text} Waiting: {waiting}. Call decide_approval with approval_id {error.pending_request_id}."


def log_failure(error: Exception) -> None:
    """Log what the operator must know of."""
    fields = {"method": "POST", "path": "/mcp"}
    if isinstance(error, ServerStopping):
        _log.info("request.interrupted", extra=fields | {"run_id": error.run_id})
    elif not isinstance(error, HoldfastError) or ERROR_STATUS[type(error)].status >= 500:
        _log.error("request.failed", extra=fields, exc_info=error)


async def _list_resources(
    context: _Context, _: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    listed = await list_resources(context.lifespan_context)
    return types.ListResourcesResult(
        resources=[
            types.Resource(
                uri=item.uri, name=item.name, description=item.description, mime_type=MEDIA_TYPE
            )
            for item in listed
        ]
    )


async def _list_templates(
    _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=kind.template,
                name=kind.title,
                description=kind.description,
                mime_type=MEDIA_TYPE,
            )
            for kind in KINDS
        ]
    )


async def _read_resource(
    context: _Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    try:
        text = await read_resource(context.lifespan_context, params.uri)
    except HoldfastError as error:
        log_failure(error)
        is_callers = ERROR_STATUS[type(error)].status < 500
        raise MCPError(
            code=types.INVALID_PARAMS if is_callers else types.INTERNAL_ERROR,
            message=cut(public_text(error)),
            data={"uri": cut(params.uri, 1_000)} if isinstance(error, NotFound) else None,
        ) from error
    contents = types.TextResourceContents(uri=params.uri, mime_type=MEDIA_TYPE, text=text)
    return types.ReadResourceResult(contents=[contents])


def _build_server() -> Server[Caller]:
    server: Server[Caller] = Server(
        "holdfast",
        version=__version__,
        title="Holdfast",
        instructions=_INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
    )
    # The SDK's telemetry would record error texts. ``request_metrics`` does not.
    server.middleware.clear()
    return server


SERVER: Final = _build_server()
