"""Requests of the MCP server as they are on the wire, for what the official client does not send."""

import json
from typing import Any

from httpx import AsyncClient, Response
from tests.support.mcp_client import LEGACY, VERSIONS

ACCEPT = {"accept": "application/json, text/event-stream"}
NAMES = {"tools/call": "name", "resources/read": "uri"}


def rpc(method: str, params: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A request of the first generation."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
    return body | ({} if params is None else {"params": params}) | fields


def modern_rpc(method: str, params: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A request of the second generation, which says in itself what it needs."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSIONS["auto"],
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    given = params or {}
    return rpc(method, given | {"_meta": meta | given.get("_meta", {})}, **fields)


def modern_headers(body: dict[str, Any]) -> dict[str, str]:
    """What the second generation repeats of the body in headers."""
    method = str(body.get("method", ""))
    headers = {"mcp-protocol-version": VERSIONS["auto"], "mcp-method": method}
    if method in NAMES:
        headers["mcp-name"] = body["params"][NAMES[method]]
    return headers


async def post(
    client: AsyncClient, body: object, headers: dict[str, str] | None = None
) -> Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = ACCEPT | {"content-type": "application/json"} | (headers or {})
    return await client.post("/mcp", content=content, headers=given)


async def ask(
    client: AsyncClient, generation: str, method: str, params: dict[str, Any] | None = None
) -> Response:
    """Send a request of this generation."""
    if generation == LEGACY:
        return await post(client, rpc(method, params))
    body = modern_rpc(method, params)
    return await post(client, body, modern_headers(body))


def messages(response: Response) -> list[dict[str, Any]]:
    """All messages of an answer, which is JSON or a stream of events."""
    if response.headers["content-type"] == "application/json":
        return [response.json()]
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("data: ")]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def result_of(response: Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    result: dict[str, Any] = messages(response)[-1]["result"]
    return result


def error_of(response: Response) -> dict[str, Any]:
    answer = messages(response)[-1]
    assert answer["jsonrpc"] == "2.0"
    error: dict[str, Any] = answer["error"]
    return error
