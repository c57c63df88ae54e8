"""The MCP server as HTTP: who is let in, what is not the protocol, and how an answer travels."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from ipaddress import ip_network
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from msgspec.structs import replace
from starlette.types import ASGIApp, Message
from tests.support.http_app import use_app
from tests.support.mcp_client import GENERATIONS, LEGACY, MODERN
from tests.support.mcp_requests import (
    ask,
    error_of,
    messages,
    modern_headers,
    modern_rpc,
    post,
    result_of,
    rpc,
)

from holdfast.errors import StoreUnavailable
from holdfast.http.app import WIRES, HttpSettings
from holdfast.http.drain_gate import DrainGate
from holdfast.http.mcp import exchange
from holdfast.http.mcp.caller import Answer, Caller
from holdfast.http.mcp.tools.table import TOOLS
from holdfast.http.mcp.tools.tool import Tool
from holdfast.http.sse import EventStream
from holdfast.http.worker_gate import WorkerGate
from holdfast.ports.services import Services

PASSWORD = "open-sesame"
LIMIT = 10_000
WAIT_SECONDS = 30

Connect = Callable[[ASGIApp], AsyncClient]
Work = Callable[[Caller, Mapping[str, Any]], Any]
ReplaceTool = Callable[[Work], str]

LIST_TOOLS = rpc("tools/list")


@pytest.fixture(params=GENERATIONS)
def generation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def replace_tool(monkeypatch: pytest.MonkeyPatch) -> ReplaceTool:
    """Let a tool do something else."""

    def put(work: Work) -> str:
        monkeypatch.setitem(TOOLS, "list_agents", replace(TOOLS["list_agents"], call=work))
        return "list_agents"

    return put


async def test_both_generations_are_answered(client: AsyncClient, generation: str) -> None:
    listed = result_of(await ask(client, generation, "tools/list"))["tools"]

    assert [tool["name"] for tool in listed] == list(TOOLS)


# Who is let in.


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
async def test_without_the_password_nothing_is_answered_and_the_answer_says_what_is_missing(
    services: Services, connect: Connect, headers: dict[str, str]
) -> None:
    with use_app(services, HttpSettings(password=PASSWORD)) as app:
        async with connect(app) as client:
            refused = await post(client, LIST_TOOLS, headers)

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json() == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32000,
            "message": "This server needs its password, in the header 'Authorization: Bearer <password>'.",
        },
    }


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {PASSWORD}"}, {"x-bare-password": f"password {PASSWORD}"}],
)
async def test_the_password_opens_it_as_it_opens_all_else(
    services: Services, connect: Connect, headers: dict[str, str]
) -> None:
    with use_app(services, HttpSettings(password=PASSWORD)) as app:
        async with connect(app) as client:
            assert result_of(await post(client, LIST_TOOLS, headers))["tools"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_without_a_password_other_names_and_web_pages_are_refused(
    client: AsyncClient, headers: dict[str, str]
) -> None:
    refused = await post(client, LIST_TOOLS, headers)

    assert refused.status_code == 403
    assert "HOLDFAST_PASSWORD" in error_of(refused)["message"]


async def test_a_host_that_is_none_is_refused(client: AsyncClient) -> None:
    refused = await post(client, LIST_TOOLS, {"host": "local host"})

    assert refused.status_code == 400
    assert "Host header" in error_of(refused)["message"]


async def test_the_caller_is_the_user_whom_the_header_names(
    client: AsyncClient, replace_tool: ReplaceTool, generation: str
) -> None:
    async def tell_user(caller: Caller, _: Mapping[str, Any]) -> Answer:
        return Answer(text=caller.actor.user_id)

    user = "user-11111111-1111-4111-8111-111111111111"
    tool = {"name": replace_tool(tell_user)}
    client.headers["user_id"] = user
    answered = await ask(client, generation, "tools/call", tool)
    client.headers["user_id"] = "ada"
    refused = await ask(client, generation, "tools/call", tool)

    assert result_of(answered)["content"][0]["text"] == user
    assert refused.status_code == 400
    assert error_of(refused)["message"].startswith("Invalid user ID format: ada")


async def test_a_worker_answers_nothing(services: Services, connect: Connect) -> None:
    with use_app(services) as app:
        async with connect(WorkerGate(app, WIRES, WIRES.open_paths)) as client:
            refused = await post(client, LIST_TOOLS)

    assert refused.status_code == 503
    assert "HOLDFAST_ROLE=worker" in error_of(refused)["message"]


async def test_a_server_that_stops_takes_no_calls(services: Services, connect: Connect) -> None:
    with use_app(services) as app:
        gate = DrainGate(app, WIRES)
        async with connect(gate) as client:
            assert result_of(await post(client, LIST_TOOLS))
            gate.refuse_messages(WAIT_SECONDS)
            refused = await post(client, LIST_TOOLS)

    assert refused.status_code == 503
    assert 0 < int(refused.headers["retry-after"]) <= WAIT_SECONDS
    assert "The server is stopping" in error_of(refused)["message"]


async def test_it_works_behind_a_prefix(services: Services, connect: Connect) -> None:
    settings = HttpSettings(trusted_proxies=(ip_network("127.0.0.1/32"),))
    with use_app(services, settings) as app:
        async with connect(app) as client:
            headers = {"x-forwarded-prefix": "/holdfast"}
            assert result_of(await post(client, LIST_TOOLS, headers))["tools"]
            refused = await client.get("/mcp", headers=headers)

    assert refused.status_code == 405
    assert error_of(refused)["message"] == "Method Not Allowed"


# What is not the protocol.


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_there_is_no_stream_to_get_and_no_session_to_delete(
    client: AsyncClient, method: str, path: str
) -> None:
    refused = await client.request(method, path, headers={"mcp-session-id": "1"})

    assert refused.status_code == 405
    assert refused.headers["allow"] == "POST"
    assert error_of(refused)["code"] == -32000


async def test_the_path_may_end_with_a_slash_and_has_nothing_below_it(client: AsyncClient) -> None:
    with_slash = await client.post("/mcp/", json=LIST_TOOLS)
    below = await client.post("/mcp/tools", json=LIST_TOOLS)

    assert result_of(with_slash)["tools"]
    assert below.status_code == 404
    assert error_of(below)["message"] == "Not Found"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "json", ""])
async def test_another_content_type_is_refused(client: AsyncClient, kind: str) -> None:
    refused = await post(client, LIST_TOOLS, {"content-type": kind})

    assert refused.status_code == 415
    assert "application/json" in error_of(refused)["message"]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json, text/event-stream", 200),
        ("*/*", 200),
        ("application/json;q=0.9, text/*", 200),
        ("application/json", 200),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("", 406),
    ],
)
async def test_a_client_must_take_json(client: AsyncClient, accept: str, status: int) -> None:
    assert (await post(client, LIST_TOOLS, {"accept": accept})).status_code == status


async def test_a_body_over_the_limit_is_refused(services: Services, connect: Connect) -> None:
    async def stream() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1_000

    with use_app(services, HttpSettings(max_body_bytes=LIMIT)) as app:
        async with connect(app) as client:
            announced = await post(client, b" " * (LIMIT + 1))
            counted = await client.post("/mcp", content=stream())

    for refused in (announced, counted):
        assert refused.status_code == 413
        assert "HOLDFAST_MAX_BODY_BYTES" in error_of(refused)["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}',
        b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
        b"[" * 5_000 + b"]" * 5_000,
        b"[" + b"1," * 200_000 + b"1]",
    ],
    ids=lambda body: str(body[:20]),
)
@pytest.mark.parametrize("headers", [{}, modern_headers(LIST_TOOLS)], ids=GENERATIONS)
async def test_a_body_that_is_no_json_is_refused(
    client: AsyncClient, body: bytes, headers: dict[str, str]
) -> None:
    refused = await post(client, body, headers)

    assert refused.status_code == 400
    assert error_of(refused)["code"] == -32700
    assert refused.json()["id"] is None


@pytest.mark.parametrize(
    "body",
    [
        None,
        1,
        "ping",
        [],
        [LIST_TOOLS, LIST_TOOLS],
        {},
        {"method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": {}, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"},
        {"jsonrpc": "2.0", "method": None},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("headers", [{}, modern_headers(LIST_TOOLS)], ids=GENERATIONS)
async def test_json_that_is_no_message_is_refused(
    client: AsyncClient, body: object, headers: dict[str, str]
) -> None:
    refused = await post(client, body, headers)

    assert refused.status_code == 400
    assert error_of(refused)["code"] == -32600


async def test_a_method_that_does_not_exist_is_said_in_the_way_of_the_generation(
    client: AsyncClient, generation: str
) -> None:
    for method in ("tools/explode", "prompts/list", "x" * 5_000):
        refused = await ask(client, generation, method)

        assert refused.status_code == (200 if generation == LEGACY else 404)
        assert error_of(refused)["code"] == -32601
        assert refused.json()["id"] == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"name": "list_agents", "arguments": []}),
        ("tools/call", {"name": "no_such_tool"}),
        ("resources/read", {}),
        ("resources/read", {"uri": ["holdfast://approvals"]}),
    ],
)
async def test_parameters_that_do_not_fit_are_refused(
    client: AsyncClient, generation: str, method: str, params: dict[str, Any]
) -> None:
    body = rpc(method, params) if generation == LEGACY else modern_rpc(method, params)
    name = params.get("name", params.get("uri"))
    headers = modern_headers(modern_rpc("ping")) | {"mcp-method": method}
    if isinstance(name, str):
        headers["mcp-name"] = name
    refused = await post(client, body, {} if generation == LEGACY else headers)

    assert refused.status_code == (200 if generation == LEGACY else 400)
    assert error_of(refused)["code"] in (-32602, -32020)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-protocol-version": "2031-01-01"}, -32020),
        ({"mcp-method": "tools/call"}, -32020),
        ({"mcp-protocol-version": "nonsense"}, -32020),
    ],
)
async def test_headers_that_contradict_the_body_are_refused(
    client: AsyncClient, headers: dict[str, str], code: int
) -> None:
    body = modern_rpc("tools/list")
    refused = await post(client, body, modern_headers(body) | headers)

    assert refused.status_code == 400
    assert error_of(refused)["code"] == code


async def test_a_version_that_is_not_spoken_is_refused_and_the_others_are_named(
    client: AsyncClient,
) -> None:
    version = "2031-01-01"
    meta = {"io.modelcontextprotocol/protocolVersion": version}
    body = modern_rpc("tools/list", {"_meta": meta})
    headers = modern_headers(body) | {"mcp-protocol-version": version}
    refused = await post(client, body, headers)
    notified = await post(
        client, {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers
    )

    for answer in (refused, notified):
        assert answer.status_code == 400
        assert error_of(answer)["code"] == -32022
        assert error_of(answer)["data"]["supported"] == ["2026-07-28"]


async def test_a_header_that_comes_twice_is_refused(client: AsyncClient) -> None:
    body = modern_rpc("tools/list")
    headers = [*modern_headers(body).items(), ("mcp-method", "tools/call")]
    refused = await client.post("/mcp", json=body, headers=headers)

    assert refused.status_code == 400
    assert "more than once" in error_of(refused)["message"]


@pytest.mark.parametrize(
    "note",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    ],
    ids=lambda note: note["method"],
)
async def test_notifications_are_accepted_and_have_no_answer(
    client: AsyncClient, note: dict[str, Any]
) -> None:
    for headers in ({}, modern_headers(note)):
        accepted = await post(client, note, headers)
        assert (accepted.status_code, accepted.content) == (202, b"")


async def test_an_answer_to_a_question_that_was_never_asked_is_accepted(
    client: AsyncClient,
) -> None:
    """Only clients of the first generation may send one."""
    reply = {"jsonrpc": "2.0", "id": 7, "result": {}}
    error = {"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "No"}}
    for body in (reply, error):
        assert (await post(client, body)).status_code == 202
        assert (await post(client, body, modern_headers(body))).status_code == 400


# How an answer travels.


async def test_a_quick_answer_is_json(client: AsyncClient, generation: str) -> None:
    answered = await ask(client, generation, "tools/list")

    assert answered.headers["content-type"] == "application/json"


async def test_an_answer_with_progress_is_a_stream_with_the_answer_at_its_end(
    client: AsyncClient, replace_tool: ReplaceTool, generation: str
) -> None:
    async def work(caller: Caller, _: Mapping[str, Any]) -> Answer:
        await caller.report("half")
        await caller.report("whole")
        return Answer(text="done")

    params = {"name": replace_tool(work), "_meta": {"progressToken": "p1"}}
    answered = await ask(client, generation, "tools/call", params)

    assert answered.headers["content-type"].startswith("text/event-stream")
    *progress, last = messages(answered)
    assert [item["params"] for item in progress] == [
        {"progressToken": "p1", "progress": 1, "message": "half"},
        {"progressToken": "p1", "progress": 2, "message": "whole"},
    ]
    assert last["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_a_client_that_takes_no_stream_gets_the_answer_without_progress(
    client: AsyncClient, replace_tool: ReplaceTool
) -> None:
    async def work(caller: Caller, _: Mapping[str, Any]) -> Answer:
        await caller.report("half")
        return Answer(text="done")

    params = {"name": replace_tool(work), "_meta": {"progressToken": "p1"}}
    answered = await post(client, rpc("tools/call", params), {"accept": "application/json"})

    assert answered.headers["content-type"] == "application/json"
    assert result_of(answered)["content"][0]["text"] == "done"


async def test_a_late_answer_keeps_its_connection_alive(
    client: AsyncClient,
    replace_tool: ReplaceTool,
    generation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream begins after a while, whether there is progress or not."""
    has_begun = asyncio.Event()
    respond = EventStream.__call__

    async def note_stream(self: EventStream, *asgi: Any) -> None:
        has_begun.set()
        await respond(self, *asgi)

    async def work(_: Caller, __: Mapping[str, Any]) -> Answer:
        await asyncio.wait_for(has_begun.wait(), WAIT_SECONDS)
        return Answer(text="done")

    monkeypatch.setattr(exchange, "KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(EventStream, "__call__", note_stream)
    answered = await ask(client, generation, "tools/call", {"name": replace_tool(work)})

    assert answered.headers["content-type"].startswith("text/event-stream")
    assert result_of(answered)["content"][0]["text"] == "done"


async def test_a_caller_who_is_cut_off_leaves_no_task(
    client: AsyncClient, replace_tool: ReplaceTool, generation: str
) -> None:
    """The server ends the requests that are left when it stops."""
    has_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def work(_: Caller, __: Mapping[str, Any]) -> Answer:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()
        raise AssertionError

    asking = asyncio.create_task(
        ask(client, generation, "tools/call", {"name": replace_tool(work)})
    )
    await asyncio.wait_for(has_begun.wait(), WAIT_SECONDS)
    asking.cancel()

    await asyncio.wait_for(has_ended.wait(), WAIT_SECONDS)


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_a_caller_who_leaves_before_there_is_an_answer_leaves_no_task(
    app: FastAPI, replace_tool: ReplaceTool, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one who takes no stream, or leaves before it has begun."""
    has_begun, has_ended = asyncio.Event(), asyncio.Event()
    sent: list[Message] = []

    async def work(_: Caller, __: Mapping[str, Any]) -> Answer:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    body = json.dumps(rpc("tools/call", {"name": replace_tool(work)})).encode()
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await has_begun.wait()
        return {"type": "http.disconnect"}

    monkeypatch.setattr(exchange, "KEEP_ALIVE_SECONDS", 2 * WAIT_SECONDS)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"accept", accept.encode())],
    }
    await asyncio.wait_for(app(scope, receive, send), WAIT_SECONDS)

    await asyncio.wait_for(has_ended.wait(), WAIT_SECONDS)
    # Nobody reads it, but it is counted.
    assert sent[0]["status"] == 499


async def test_a_fault_of_the_server_is_an_error_that_says_nothing_of_it_and_is_logged(
    client: AsyncClient,
    replace_tool: ReplaceTool,
    generation: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: Caller, __: Mapping[str, Any]) -> Answer:
        raise KeyError("a secret")

    with caplog.at_level(logging.ERROR):
        answered = await ask(client, generation, "tools/call", {"name": replace_tool(fail)})

    assert error_of(answered) == {"code": -32603, "message": "An unknown error occurred"}
    assert answered.json()["id"] == 1
    assert [record.getMessage() for record in caplog.records] == ["request.failed"]


async def test_a_database_that_fails_is_an_error_of_the_tool_and_is_logged(
    client: AsyncClient,
    replace_tool: ReplaceTool,
    generation: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: Caller, __: Mapping[str, Any]) -> Answer:
        raise StoreUnavailable("The database does not answer.")

    with caplog.at_level(logging.ERROR):
        answered = await ask(client, generation, "tools/call", {"name": replace_tool(fail)})

    result = result_of(answered)
    assert result["isError"] is True
    assert result["content"][0]["text"] == "The database does not answer."
    assert [record.getMessage() for record in caplog.records] == ["request.failed"]


ODD_VALUES = [
    "",
    " ",
    "x" * 50_000,
    "a\x00b",
    "'; drop table agents; --",
    "%_",
    "../../etc/passwd",
    "agent-00000000-0000-4000-8000-00000000000G",
    "run-00000000-0000-4000-8000-000000000000",
    "message-00000000-0000-4000-8000-000000000000",
    "😀",
    7,
    -1,
    0.5,
    1e308,
    True,
    [],
    [["x"]],
    {},
    {"a": 1},
    None,
]


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
async def test_odd_arguments_are_never_a_fault_of_the_server(
    client: AsyncClient, tool: Tool, caplog: pytest.LogCaptureFixture
) -> None:
    fields: dict[str, Any] = tool.schema["properties"]
    fitting = {"string": "x", "number": 0, "integer": 1, "boolean": True, "array": ["x"]}
    usual = {name: fitting[fields[name]["type"]] for name in tool.schema["required"]}
    for name in fields:
        for value in ODD_VALUES:
            params = {"name": tool.name, "arguments": usual | {name: value}}
            answered = await ask(client, MODERN, "tools/call", params)
            result = result_of(answered)
            assert result["content"][0]["text"], params
    assert [record.getMessage() for record in caplog.records if record.levelno >= 40] == []


async def test_twenty_calls_at_once_are_all_answered(client: AsyncClient, generation: str) -> None:
    answers = await asyncio.gather(
        *(ask(client, generation, "tools/call", {"name": "list_agents"}) for _ in range(20))
    )

    assert [result_of(answer)["structuredContent"] for answer in answers] == [{"agents": []}] * 20


async def test_an_agent_cannot_decide_about_approvals(client: AsyncClient) -> None:
    """It may be connected to the server that it lives on, and would decide about its own calls."""
    arguments = {"approval_id": "message-1", "approve": True}
    body = rpc("tools/call", {"name": "decide_approval", "arguments": arguments})

    response = await post(client, body, {"x-agent-id": "agent-1"})

    result = response.json()["result"]
    assert result["isError"]
    assert "for a person" in result["content"][0]["text"]


def test_the_openapi_document_leaves_it_out(app: FastAPI) -> None:
    """It has no words for JSON-RPC."""
    assert not [path for path in app.openapi()["paths"] if path.startswith("/mcp")]


async def test_the_second_generation_is_discovered(client: AsyncClient) -> None:
    found = result_of(await ask(client, MODERN, "server/discover"))

    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["capabilities"] == {
        "resources": {"listChanged": False, "subscribe": False},
        "tools": {"listChanged": False},
    }
