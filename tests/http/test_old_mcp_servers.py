"""The deprecated family of MCP servers, by name (tools-v1 §1.10)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.doubles.mcp import ScriptedMcp
from tests.support.http_app import use_app

from holdfast.core.mcp_servers import MASK, RemoteTool
from holdfast.errors import McpTimedOut, McpUnavailable
from holdfast.ports.mcp import McpOptions
from holdfast.ports.services import Services

PATH = "/v1/tools/mcp/servers"
WEATHER = {
    "server_name": "weather",
    "type": "streamable_http",
    "server_url": "https://mcp.example/mcp",
    "auth_header": "Authorization",
    "auth_token": "abc",
}
SHOWN = WEATHER | {"auth_token": f"Bearer {MASK}", "custom_headers": None}
BAD = {"properties": {"a": {"type": "array"}}}


@pytest.fixture
def mcp() -> ScriptedMcp:
    listed = [
        RemoteTool(name="forecast", listing={"name": "forecast", "title": "The forecast"}),
        RemoteTool(name="bad", input_schema=BAD, listing={"name": "bad", "inputSchema": BAD}),
    ]
    return ScriptedMcp({"weather": listed, "other": listed})


@pytest.fixture
def app(services: Services, mcp: ScriptedMcp) -> Iterator[FastAPI]:
    options = McpOptions(stdio_over_api=True)
    with use_app(replace(services, mcp=mcp, mcp_options=options)) as app:
        yield app


@pytest.mark.tools(26)
async def test_servers_are_listed_by_their_names(client: AsyncClient) -> None:
    assert (await client.get(PATH)).json() == {}
    assert (await client.put(PATH, json=WEATHER)).json() == [SHOWN]
    program = {
        "server_name": "files",
        "type": "stdio",
        "command": "run",
        "args": ["a"],
        "env": {"A": "b"},
    }
    await client.put(PATH, json=program)

    assert (await client.get(PATH)).json() == {
        "weather": SHOWN,
        "files": program | {"env": {"A": MASK}},
    }
    assert (await client.put(PATH, json=WEATHER)).status_code == 409


async def test_a_server_is_changed_and_deleted_by_its_name(client: AsyncClient) -> None:
    await client.put(PATH, json=WEATHER)
    await client.put(PATH, json={"server_name": "files", "command": "run", "args": []})

    headers = {"X-A": "b"}
    changed = await client.patch(
        f"{PATH}/weather", json={"custom_headers": headers, "token": "new"}
    )
    assert changed.json() == SHOWN | {"custom_headers": {"X-A": MASK}}
    cleared = await client.patch(f"{PATH}/weather", json={"auth_token": None})
    assert cleared.json()["auth_token"] is None
    program = await client.patch(
        f"{PATH}/files", json={"stdio_config": {"args": ["x"], "type": "stdio"}}
    )
    assert (program.json()["command"], program.json()["args"]) == ("run", ["x"])
    renamed = await client.patch(f"{PATH}/weather", json={"server_name": "other"})
    assert renamed.json()["server_name"] == "other"

    remaining = await client.delete(f"{PATH}/other")
    assert [item["server_name"] for item in remaining.json()] == ["files"]


async def test_the_tools_are_shown_as_the_server_lists_them(client: AsyncClient) -> None:
    await client.put(PATH, json=WEATHER)

    shown = (await client.get(f"{PATH}/weather/tools")).json()
    tested = (await client.post(f"{PATH}/test", json=WEATHER | {"server_name": "other"})).json()

    assert shown[0] == {
        "name": "forecast",
        "title": "The forecast",
        "health": {"status": "STRICT_COMPLIANT", "reasons": []},
    }
    assert shown[1]["health"]["status"] == "INVALID"
    assert tested == {"status": "success", "tools": shown}


async def test_a_server_that_is_only_tested_is_not_stored(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    await client.post(f"{PATH}/test", json=WEATHER)

    assert (await client.get(PATH)).json() == {}
    assert mcp.listed[0].headers == (("Authorization", "Bearer abc"),)
    # Its connection is not kept either.
    assert mcp.forgotten == [mcp.listed[0].server_id]

    mcp.failures += [
        McpUnavailable("weather", "no route"),
        McpTimedOut("weather", "connecting", 30),
    ]
    assert (await client.post(f"{PATH}/test", json=WEATHER)).status_code == 502
    assert (await client.post(f"{PATH}/test", json=WEATHER)).status_code == 408
    private = WEATHER | {"server_url": "http://127.0.0.1/mcp"}
    assert (await client.post(f"{PATH}/test", json=private)).status_code == 400


async def test_one_tool_is_added_whatever_its_schema_is(
    client: AsyncClient, mcp: ScriptedMcp
) -> None:
    await client.put(PATH, json=WEATHER)

    added = await client.post(f"{PATH}/weather/bad")
    again = await client.post(f"{PATH}/weather/bad")

    assert added.json()["json_schema"]["mcp:SCHEMA_STATUS"] == "INVALID"
    assert again.json() == added.json()
    assert (await client.post(f"{PATH}/weather/none")).status_code == 404
    source = 'def bad() -> str:\n    """Mine."""\n    return ""\n'
    await client.delete(f"/v1/tools/{added.json()['id']}")
    await client.post("/v1/tools/", json={"source_code": source})
    assert (await client.post(f"{PATH}/weather/bad")).status_code == 409


async def test_the_tools_are_read_again(client: AsyncClient, mcp: ScriptedMcp) -> None:
    await client.put(PATH, json=WEATHER)
    mcp.tools["weather"] = [RemoteTool(name="new")]

    resynced = await client.post(f"{PATH}/weather/resync")

    assert resynced.json() == {"deleted": ["forecast"], "updated": [], "added": ["new"]}
    mcp.failures.append(McpUnavailable("weather", "no route"))
    failed = await client.post(f"{PATH}/weather/resync")
    assert (failed.status_code, failed.json()["detail"]["code"]) == (404, "MCPServerUnavailable")


async def test_a_tool_is_executed(client: AsyncClient, mcp: ScriptedMcp) -> None:
    await client.put(PATH, json=WEATHER)

    ran = await client.post(f"{PATH}/weather/tools/forecast/execute", json={"args": {"a": 1}})

    assert ran.json() == {"result": "forecast({'a': 1})", "success": True}
    mcp.failures.append(McpUnavailable("weather", "no route"))
    failed = await client.post(f"{PATH}/weather/tools/forecast/execute")
    assert failed.status_code == 502


async def test_an_unknown_name_is_told(client: AsyncClient) -> None:
    detail = {
        "code": "MCPServerNotFoundError",
        "message": "MCP server none not found",
        "mcp_server_name": "none",
    }
    for method, path in (
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/tools"),
        ("POST", "/forecast"),
        ("POST", "/tools/forecast/execute"),
    ):
        answer = await client.request(
            method, f"{PATH}/none{path}", json={} if method == "PATCH" else None
        )
        assert (answer.status_code, answer.json()) == (404, {"detail": detail})
    resynced = await client.post(f"{PATH}/none/resync")
    assert resynced.status_code == 400
    assert "MCP server 'none' not found" in resynced.json()["detail"]


async def test_malformed_bodies_are_refused(client: AsyncClient) -> None:
    body: Any
    await client.put(PATH, json=WEATHER)
    for body in (
        {},
        [],
        {"server_name": "a"},
        WEATHER | {"type": "none"},
        WEATHER | {"server_url": "x"},
    ):
        assert (await client.put(PATH, json=body)).status_code == 422
        assert (await client.post(f"{PATH}/test", json=body)).status_code == 422
    for body in ([], {"server_url": "x"}, {"stdio_config": "run"}, {"custom_headers": 1}):
        assert (await client.patch(f"{PATH}/weather", json=body)).status_code == 422
