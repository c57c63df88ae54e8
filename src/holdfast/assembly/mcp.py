"""The client of MCP servers, and what the operator allows of them."""

from contextlib import AsyncExitStack

from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.config import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.mcp import McpOptions


def open_mcp(settings: Settings, stack: AsyncExitStack, clock: Clock) -> PooledMcpClient:
    """Nothing of the SDK is imported before the first call."""
    client = PooledMcpClient(
        ClientOptions(
            connect_seconds=settings.mcp_connect_seconds,
            list_seconds=settings.mcp_list_seconds,
            call_seconds=settings.mcp_call_seconds,
            idle_seconds=settings.mcp_idle_seconds,
            max_connections=settings.mcp_connections,
            max_result_bytes=settings.mcp_result_bytes,
        ),
        settings.allowed_private_hosts,
        clock,
    )
    stack.push_async_callback(client.aclose)
    return client


def read_mcp_options(settings: Settings) -> McpOptions:
    return McpOptions(
        stdio_over_api=settings.mcp_stdio == "api" or not settings.mcp_disable_stdio,
        approve=settings.mcp_approve,
        public_url=settings.public_url,
    )
