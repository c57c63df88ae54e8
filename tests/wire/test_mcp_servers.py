"""MCP servers and their tools through the official client (tools-v1 §1)."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
from letta_client import (
    APIStatusError,
    BadRequestError,
    ConflictError,
    InternalServerError,
    Letta,
    NotFoundError,
)
from letta_client.types import StreamableHTTPMcpServer
from tests.support.mcp_server import McpTestServer
from tests.support.tool_sources import SHOUT
from tests.support.wire_server import MakeAgent, MakeTool

MakeServer = Callable[..., StreamableHTTPMcpServer]

STRING = {"type": "string"}


@pytest.fixture
def remote() -> Iterator[McpTestServer]:
    """A real MCP server without tools."""
    with McpTestServer() as server:
        server.tools.clear()
        yield server


@pytest.fixture
def make_server(client: Letta) -> Iterator[MakeServer]:
    """Makes MCP servers; they are deleted at the end."""
    made: list[str] = []

    def make(url: str, name: str = "weather", **config: Any) -> Any:
        server = client.mcp_servers.create(
            server_name=name,
            config={"mcp_server_type": "streamable_http", "server_url": url} | config,  # type: ignore[arg-type]  # a test's own dict
        )
        made.append(str(server.id))
        return server

    yield make
    for server_id in made:
        with suppress(NotFoundError):
            client.mcp_servers.delete(server_id)


def names(client: Letta, server_id: str | None) -> list[str | None]:
    return [tool.name for tool in client.mcp_servers.tools.list(str(server_id))]


def with_properties(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.both_databases
@pytest.mark.tools(1, 6, 7)
def test_a_reachable_servers_tools_are_read_in(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    remote.add_tool("forecast", description="Tomorrow.", input_schema=with_properties(city=STRING))
    remote.add_tool("look-up", readOnlyHint=True)

    server = make_server(remote.url)

    assert isinstance(server, StreamableHTTPMcpServer)
    assert server.mcp_server_type == "streamable_http"
    assert str(server.id).startswith("mcp_server-")
    assert server.server_url == remote.url
    first, second = client.mcp_servers.tools.list(str(server.id))
    assert (first.name, second.name) == ("forecast", "look-up")
    for tool in (first, second):
        assert tool.tool_type == "external_mcp"
        assert tool.tags == ["mcp:weather"]
        metadata: Any = tool.metadata
        assert metadata["mcp"]["server_id"] == server.id
        assert tool.json_schema is not None
        assert tool.json_schema["mcp:SCHEMA_STATUS"] == "STRICT_COMPLIANT"
        assert "request_heartbeat" not in str(tool.json_schema)
    assert first.description == "Tomorrow."
    assert client.mcp_servers.retrieve(str(server.id)) == server
    assert server in client.mcp_servers.list()
    assert client.mcp_servers.tools.retrieve(first.id, mcp_server_id=str(server.id)) == first


@pytest.mark.tools(2)
def test_an_unreachable_server_is_created_without_tools(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    remote.stop()

    server = make_server(remote.url)

    assert names(client, server.id) == []
    with pytest.raises(NotFoundError) as refused:
        client.mcp_servers.refresh(str(server.id))
    assert isinstance(refused.value.body, dict)
    detail = refused.value.body["detail"]
    assert detail["code"] == "MCPServerUnavailable"
    assert detail["message"] == "Could not connect to MCP server weather to resync tools"

    remote.add_tool("forecast")
    remote.start()
    assert client.mcp_servers.refresh(str(server.id)) == {
        "deleted": [],
        "updated": [],
        "added": ["forecast"],
    }


@pytest.mark.both_databases
@pytest.mark.tools(3, 19)
def test_a_name_is_given_once(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    first = make_server(remote.url)
    with pytest.raises(ConflictError) as refused:
        make_server(remote.url)
    assert refused.value.response.headers["x-should-retry"] == "false"

    second = make_server(remote.url, "other")
    with pytest.raises(ConflictError):
        client.mcp_servers.update(
            str(second.id),
            server_name="weather",
            config={"server_url": None, "mcp_server_type": "streamable_http"},
        )
    assert {first.id, second.id} <= {server.id for server in client.mcp_servers.list()}


@pytest.mark.tools(4)
def test_callers_name_no_programs_unless_the_operator_allows_it(client: Letta) -> None:
    with pytest.raises(BadRequestError, match="MCP stdio servers are disabled"):
        client.mcp_servers.create(
            server_name="files", config={"mcp_server_type": "stdio", "command": "true", "args": []}
        )


@pytest.mark.tools(5)
def test_the_type_may_be_left_out_and_must_be_known(
    client: Letta, http: httpx.Client, remote: McpTestServer
) -> None:
    config = {"server_url": remote.url}
    created = http.post("/v1/mcp-servers/", json={"server_name": "weather", "config": config})
    assert created.json()["mcp_server_type"] == "streamable_http"
    client.mcp_servers.delete(created.json()["id"])

    config["mcp_server_type"] = "websocket"
    refused = http.post("/v1/mcp-servers/", json={"server_name": "weather", "config": config})
    assert refused.status_code == 422


@pytest.mark.tools(8)
def test_a_tool_that_models_refuse_is_not_registered(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    remote.add_tool("bad", input_schema=with_properties(("items",), items={"type": "array"}))
    free = {"type": "object", "additionalProperties": True}
    remote.add_tool("free", input_schema=with_properties(options=free))

    server = make_server(remote.url)

    (tool,) = client.mcp_servers.tools.list(str(server.id))
    assert tool.name == "free"
    assert tool.json_schema is not None
    assert tool.json_schema["mcp:SCHEMA_STATUS"] == "NON_STRICT_ONLY"
    refreshed: Any = client.mcp_servers.refresh(str(server.id))
    assert refreshed["skipped"][0]["name"] == "bad"


@pytest.mark.both_databases
@pytest.mark.tools(9, 10)
@pytest.mark.parametrize("others", [0, 60])
def test_a_refresh_says_what_has_changed(
    client: Letta,
    remote: McpTestServer,
    make_server: MakeServer,
    make_agent: MakeAgent,
    others: int,
) -> None:
    with ExitStack() as stack:
        if others:
            crowd = stack.enter_context(McpTestServer())
            crowd.tools.clear()
            for number in range(others):
                crowd.add_tool(f"other-{number}")
            make_server(crowd.url, "crowd")
    remote.add_tool("A")
    remote.add_tool("B")
    server = make_server(remote.url)
    before = {tool.name: tool.id for tool in client.mcp_servers.tools.list(str(server.id))}
    agent = make_agent(tool_ids=list(before.values()))

    remote.remove_tool("A")
    remote.add_tool("B", input_schema=with_properties(city=STRING))
    remote.add_tool("C")
    changes = client.mcp_servers.refresh(str(server.id))

    assert changes == {"deleted": ["A"], "updated": ["B"], "added": ["C"]}
    after = {tool.name: tool.id for tool in client.mcp_servers.tools.list(str(server.id))}
    assert after.keys() == {"B", "C"}
    assert after["B"] == before["B"]
    assert [tool.id for tool in client.agents.tools.list(agent.id)] == [before["B"]]
    assert client.mcp_servers.refresh(str(server.id)) == {"deleted": [], "updated": [], "added": []}


@pytest.mark.both_databases
def test_refreshes_at_the_same_moment_store_each_tool_once(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    server = make_server(remote.url)
    for number in range(100):
        remote.add_tool(f"tool-{number}")

    with ThreadPoolExecutor(4) as threads:
        refreshes = [threads.submit(client.mcp_servers.refresh, str(server.id)) for _ in range(8)]
        changes: list[Any] = [refresh.result(60) for refresh in refreshes]

    assert sum(len(change["added"]) for change in changes) == 100
    assert len(names(client, server.id)) == 100


@pytest.mark.tools(11)
def test_a_tool_can_be_run_without_an_agent(client: Letta, make_server: MakeServer) -> None:
    with McpTestServer() as remote:
        server = make_server(remote.url)
        ids = {tool.name: tool.id for tool in client.mcp_servers.tools.list(str(server.id))}

        def run(name: str, **args: Any) -> tuple[str, object]:
            result = client.mcp_servers.tools.run(
                ids[name], mcp_server_id=str(server.id), args=args
            )
            return result.status, result.func_return

        assert run("echo", text="hello") == ("success", "hello")
        assert run("nothing") == ("success", "Empty response from tool")
        status, text = run("texts")
        assert (status, " " in str(text)) == ("success", True)
        assert run("fail", message="It is raining.") == ("error", "It is raining.")
        status, text = run("picture")
        assert (status, str(text).startswith("[image image/png, ")) == ("success", True)
        status, _ = run("crash")
        assert status == "error"
        # There is no agent.
        assert all("x-agent-id" not in call.headers for call in remote.calls)


@pytest.mark.tools(12)
def test_running_a_tool_of_a_dead_server_is_a_502(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    remote.add_tool("forecast")
    server = make_server(remote.url)
    (tool,) = client.mcp_servers.tools.list(str(server.id))
    remote.stop()

    with pytest.raises(InternalServerError) as failed:
        client.mcp_servers.tools.run(tool.id, mcp_server_id=str(server.id))

    assert failed.value.status_code == 502
    assert isinstance(failed.value.body, dict)
    assert failed.value.body["error"]["type"] == "mcp_connection_error"
    assert failed.value.body["error"]["message"] == "Failed to connect to MCP server."


@pytest.mark.tools(16, 17)
def test_headers_and_tokens_are_sent_as_they_are_named(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    given = {"auth_token": "{{ KEY | none }}", "custom_headers": {"X-Region": "eu"}}
    server = make_server(remote.url, **given)
    named = make_server(remote.url, "named", auth_token="abc", auth_header="X-API-Key")

    first, last = remote.requests[0].headers, remote.requests[-1].headers
    assert (first["authorization"], first["x-region"]) == ("Bearer none", "eu")
    assert "x-agent-id" not in first
    assert last["x-api-key"] == "abc"
    assert "authorization" not in last
    assert server.auth_token == "Bearer {{ KEY | none }}"
    assert (named.auth_header, named.auth_token) == ("X-API-Key", "********")


@pytest.mark.both_databases
@pytest.mark.tools(18)
def test_a_change_takes_effect(
    client: Letta, remote: McpTestServer, make_server: MakeServer
) -> None:
    remote.token = "right"
    remote.add_tool("forecast")
    server = make_server(remote.url, auth_token="wrong")
    assert names(client, server.id) == []

    changed = client.mcp_servers.update(
        str(server.id),
        config={
            "mcp_server_type": "streamable_http",
            "server_url": None,
            "auth_token": "Bearer right",
        },
    )
    assert isinstance(changed, StreamableHTTPMcpServer)
    assert changed.server_url == remote.url
    client.mcp_servers.refresh(str(server.id))
    (tool,) = client.mcp_servers.tools.list(str(server.id))

    client.mcp_servers.update(
        str(server.id),
        server_name="wetter",
        config={"mcp_server_type": "streamable_http", "server_url": None},
    )
    (renamed,) = client.mcp_servers.tools.list(str(server.id))
    assert renamed.id == tool.id
    assert renamed.tags == ["mcp:wetter"]
    metadata: Any = renamed.metadata
    assert metadata["mcp"]["server_name"] == "wetter"
    ran = client.mcp_servers.tools.run(tool.id, mcp_server_id=str(server.id))
    assert ran.status == "success"


@pytest.mark.both_databases
@pytest.mark.tools(20)
def test_a_deleted_servers_tools_are_gone(
    client: Letta, remote: McpTestServer, make_server: MakeServer, make_agent: MakeAgent
) -> None:
    remote.add_tool("forecast")
    server = make_server(remote.url)
    agent = make_agent(tools=["forecast"])
    assert [tool.name for tool in client.agents.tools.list(agent.id)] == ["forecast"]

    deleted = client.mcp_servers.with_raw_response.delete(str(server.id))

    assert deleted.status_code == 204
    assert [tool.name for tool in client.agents.tools.list(agent.id)] == []
    assert [tool.name for tool in client.tools.list(name="forecast")] == []
    with pytest.raises(NotFoundError):
        client.mcp_servers.tools.list(str(server.id))
    with pytest.raises(NotFoundError):
        client.mcp_servers.delete(str(server.id))


@pytest.mark.tools(21)
def test_a_tool_of_another_server_is_not_found(
    client: Letta, remote: McpTestServer, make_server: MakeServer, make_tool: MakeTool
) -> None:
    remote.add_tool("forecast")
    server = make_server(remote.url)
    (tool,) = client.mcp_servers.tools.list(str(server.id))
    other = make_server(remote.url, "other")
    custom = make_tool(SHOUT)

    for tool_id, server_id in ((tool.id, other.id), (custom.id, server.id)):
        with pytest.raises(NotFoundError, match="Tool not found with id="):
            client.mcp_servers.tools.retrieve(tool_id, mcp_server_id=str(server_id))
        with pytest.raises(NotFoundError):
            client.mcp_servers.tools.run(tool_id, mcp_server_id=str(server_id))


@pytest.mark.tools(22)
def test_a_tool_of_another_kind_is_not_replaced(
    client: Letta, remote: McpTestServer, make_server: MakeServer, make_tool: MakeTool
) -> None:
    custom = make_tool(SHOUT)
    remote.add_tool(str(custom.name))
    remote.add_tool("conversation_search")
    remote.add_tool("forecast")

    server = make_server(remote.url)

    assert names(client, server.id) == ["forecast"]
    assert client.tools.retrieve(custom.id) == custom
    refreshed: Any = client.mcp_servers.refresh(str(server.id))
    assert {item["name"] for item in refreshed["skipped"]} == {custom.name, "conversation_search"}
    # And a second server does not take the tools of the first.
    other = make_server(remote.url, "other")
    assert names(client, other.id) == []


@pytest.mark.tools(26)
def test_the_old_family_lists_servers_by_name(
    http: httpx.Client, remote: McpTestServer, make_server: MakeServer
) -> None:
    make_server(remote.url)

    listed = http.get("/v1/tools/mcp/servers").json()

    assert listed["weather"]["server_url"] == remote.url
    assert listed["weather"]["type"] == "streamable_http"


def test_tools_of_mcp_servers_are_tools_like_all_others(
    client: Letta, remote: McpTestServer, make_server: MakeServer, make_agent: MakeAgent
) -> None:
    remote.add_tool("forecast")
    server = make_server(remote.url)
    (tool,) = client.mcp_servers.tools.list(str(server.id))

    assert [item.id for item in client.tools.list(tool_types=["external_mcp"])] == [tool.id]
    others = client.tools.list(exclude_tool_types=["external_mcp"], name="forecast")
    assert [item.id for item in others] == []
    agent = make_agent()
    client.agents.tools.attach(tool.id, agent_id=agent.id)
    assert [item.id for item in client.agents.tools.list(agent.id)] == [tool.id]
    changed = client.tools.update(tool.id, return_char_limit=5, tags=["mine"])
    assert (changed.return_char_limit, changed.tags) == (5, ["mine"])
    assert client.mcp_servers.refresh(str(server.id)) == {"deleted": [], "updated": [], "added": []}
    ran = client.mcp_servers.tools.run(tool.id, mcp_server_id=str(server.id))
    assert str(ran.func_return).startswith("forec... [NOTE: function output was truncated")


def test_a_servers_tools_come_over_sse_too(client: Letta) -> None:
    with McpTestServer(transport="sse", generation="handshake") as remote:
        server = client.mcp_servers.create(
            server_name="weather", config={"mcp_server_type": "sse", "server_url": remote.url}
        )
        try:
            assert server.mcp_server_type == "sse"
            assert "echo" in names(client, server.id)
        finally:
            client.mcp_servers.delete(str(server.id))


def test_a_private_address_is_refused(client: Letta, make_server: MakeServer) -> None:
    """127.0.0.1 is allowed here, and no other."""
    with pytest.raises(APIStatusError, match="HOLDFAST_ALLOWED_PRIVATE_HOSTS"):
        make_server("http://10.1.2.3/mcp")


@pytest.mark.slow
@pytest.mark.both_databases
def test_many_servers_with_many_tools_are_refreshed(
    client: Letta, make_server: MakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        remotes = [stack.enter_context(McpTestServer()) for _ in range(10)]
        for index, remote in enumerate(remotes):
            remote.tools.clear()
            for number in range(500):
                schema = with_properties((), **{f"p{field}": STRING for field in range(5)})
                remote.add_tool(
                    f"tool-{index}-{number}", description="x" * 200, input_schema=schema
                )
        began = time.monotonic()
        servers = [make_server(remote.url, f"server-{i}") for i, remote in enumerate(remotes)]
        created = time.monotonic()
        assert len(names(client, servers[0].id)) == 500
        for remote in remotes:
            for offered in list(remote.tools):
                remote.add_tool(offered, description="new")
        changing = time.monotonic()
        for server in servers:
            changes: Any = client.mcp_servers.refresh(str(server.id))
            assert len(changes["updated"]) == 500
        changed = time.monotonic()
        for server in servers:
            client.mcp_servers.refresh(str(server.id))
        unchanged = time.monotonic()
    with capsys.disabled():
        print(  # noqa: T201 - a figure for whoever reads the log
            f"\n10 servers x 500 tools: created in {created - began:.2f} s, all changed in "
            f"{changed - changing:.2f} s, nothing changed in {unchanged - changed:.2f} s"
        )
