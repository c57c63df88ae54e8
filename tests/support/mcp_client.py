"""The official MCP client, connected to Holdfast's own MCP server in either generation of the protocol."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, TextResourceContents

# The modes of the client: with a handshake, or asking the server what it speaks, which then is the newest.
LEGACY = "legacy"
MODERN = "auto"
GENERATIONS = (LEGACY, MODERN)
VERSIONS = {LEGACY: "2025-11-25", MODERN: "2026-07-28"}
# Longer than anything here takes.
TIMEOUT_SECONDS = 60.0


@asynccontextmanager
async def connect_mcp(
    address: str, generation: str, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Client]:
    """A client of the MCP server of the Holdfast at this address."""
    async with httpx2.AsyncClient(
        headers=dict(headers or {}), timeout=TIMEOUT_SECONDS, verify=False
    ) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        async with Client(transport, mode=generation) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


def run_id_of(result: CallToolResult) -> str:
    assert result.meta is not None
    return str(result.meta["holdfast/run_id"])


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """The text that the tool answers; it must not be an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


async def fail(client: Client, tool: str, **arguments: Any) -> str:
    """The text of the error that the tool answers."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


async def call_for_value(client: Client, tool: str, **arguments: Any) -> Any:
    """What the tool answers to programs, which is what it answers to models."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert json.loads(text_of(result)) == result.structured_content
    return result.structured_content


async def read(client: Client, uri: str) -> Any:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    assert contents.mime_type == "application/json"
    return json.loads(contents.text)
