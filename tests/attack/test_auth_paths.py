"""No way around the password: every route, and every path, header and method that has ever fooled a gate.

The application has no services here. A request that gets past the gate fails with something else than 401.
"""

import base64
import re
import socket
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import unquote

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.routing import Route
from tests.support.waiting import WAIT_SECONDS

from holdfast.http.app import WIRES, HttpSettings, build_app

PASSWORD = "open-sesame"
EXAMPLE_ID = "123e4567-e89b-42d3-8456-426614174000"
AGENTS = "/v1/agents/"
OPEN_PATHS = (
    *("/v1/health", "/v1/ready", "/latest/health", "/latest/ready"),
    "/v1/tools/mcp/oauth/callback",
)

Headers = list[tuple[bytes, bytes]]

_PARAMETER = re.compile(r"{([a-z]*)[a-z_:]*}")


@cache
def build_locked_app() -> FastAPI:
    return build_app(None, HttpSettings(password=PASSWORD))


def list_operations() -> list[str]:
    """Every operation, with an example in the place of each parameter."""
    routes = [
        route
        for wire in WIRES.all
        for router in wire.routers
        for route in router.routes
        if isinstance(route, Route)
    ]
    found = [
        f"{method} {_PARAMETER.sub(_example, route.path)}"
        for route in routes
        for method in sorted(route.methods or ())
    ]
    documents = ["GET /docs", "GET /openapi.json", "GET /docs/oauth2-redirect", "GET /metrics"]
    return [*found, *documents]


def _example(parameter: re.Match[str]) -> str:
    return f"{parameter[1]}-{EXAMPLE_ID}"


OPERATIONS = [
    operation
    for operation in list_operations()
    if operation.split()[1].removesuffix("/") not in OPEN_PATHS
]


async def ask(method: str, target: str, headers: Headers | None = None) -> int:
    """The status of an answer to this request line, which no client library has tidied up."""
    raw_path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 8283),
        "client": ("127.0.0.1", 50_000),
        "method": method,
        "root_path": "",
        # As uvicorn does it.
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost:8283"), *(headers or [])],
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    try:
        await build_locked_app()(scope, receive, send)
    except AttributeError:
        # Past the gate, without services.
        return 500
    return statuses[0]


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


WRONG_KEYS: dict[str, Headers] = {
    "no key": [],
    "an empty header": [(b"authorization", b"")],
    "an empty key": [(b"authorization", b"Bearer ")],
    "a wrong key": [(b"authorization", b"Bearer wrong")],
    "null": [(b"authorization", b"Bearer null")],
    "undefined": [(b"authorization", b"Bearer undefined")],
    "the key alone": [(b"authorization", PASSWORD.encode())],
    "the key without its last letter": [(b"authorization", f"Bearer {PASSWORD[:-1]}".encode())],
    "the key and more": [(b"authorization", f"Bearer {PASSWORD}x".encode())],
    "the key and a space": [(b"authorization", f"Bearer {PASSWORD} ".encode())],
    "two spaces": [(b"authorization", f"Bearer  {PASSWORD}".encode())],
    "a tab": [(b"authorization", f"Bearer\t{PASSWORD}".encode())],
    "the key and a NUL": [(b"authorization", f"Bearer {PASSWORD}\0".encode())],
    "the key in capitals": [(b"authorization", f"Bearer {PASSWORD.upper()}".encode())],
    "the key, encoded": [(b"authorization", b"Bearer open%2Dsesame")],
    "the key in quotes": [(b"authorization", f'Bearer "{PASSWORD}"'.encode())],
    "two keys in one header": [(b"authorization", f"Bearer wrong, Bearer {PASSWORD}".encode())],
    "another scheme": [(b"authorization", f"Token {PASSWORD}".encode())],
    "Basic": [(b"authorization", basic(f"user:{PASSWORD}"))],
    "Basic without a name": [(b"authorization", basic(PASSWORD))],
    "the other header's prefix": [(b"authorization", f"password {PASSWORD}".encode())],
    "the other header without its prefix": [(b"x-bare-password", PASSWORD.encode())],
    "the other header with Bearer": [(b"x-bare-password", f"Bearer {PASSWORD}".encode())],
    "the other header, wrong": [(b"x-bare-password", b"password wrong")],
    "for a proxy": [(b"proxy-authorization", f"Bearer {PASSWORD}".encode())],
    "an API key": [(b"x-api-key", PASSWORD.encode())],
    "a cookie": [(b"cookie", f"authorization=Bearer {PASSWORD}; password={PASSWORD}".encode())],
    "a header with an underscore": [(b"x_bare_password", f"password {PASSWORD}".encode())],
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_no_operation_answers_without_the_key(operation: str) -> None:
    method, path = operation.split()
    for name, headers in WRONG_KEYS.items():
        assert await ask(method, path, headers) == 401, name
    with_key: Headers = [(b"authorization", f"Bearer {PASSWORD}".encode())]
    assert await ask(method, path, with_key) != 401


@pytest.mark.parametrize(
    "target",
    [f"{AGENTS}?password={PASSWORD}", f"{AGENTS}?token={PASSWORD}&authorization=Bearer+{PASSWORD}"],
)
async def test_the_query_is_no_place_for_a_key(target: str) -> None:
    assert await ask("GET", target) == 401


TRUSTED_BY_OTHERS: dict[str, Headers] = {
    "the address of loopback": [(b"x-forwarded-for", b"127.0.0.1"), (b"x-real-ip", b"127.0.0.1")],
    "a forwarded header": [(b"forwarded", b"for=127.0.0.1;host=localhost;proto=https")],
    "another host": [(b"x-forwarded-host", b"localhost"), (b"x-host", b"localhost")],
    "another path": [(b"x-original-url", b"/v1/health"), (b"x-rewrite-url", b"/v1/health")],
    "a path prefix": [(b"x-forwarded-prefix", b"/v1/health")],
    "the path before a proxy": [(b"x-forwarded-uri", b"/v1/health"), (b"x-original-uri", b"/")],
    "another method": [(b"x-http-method-override", b"OPTIONS"), (b"x-method-override", b"HEAD")],
    "a user": [(b"user_id", f"user-{EXAMPLE_ID}".encode()), (b"x-remote-user", b"root")],
    "a client's certificate": [(b"x-client-verify", b"SUCCESS"), (b"x-ssl-client-s-dn", b"CN=me")],
    "a preflight": [(b"origin", b"http://localhost"), (b"access-control-request-method", b"GET")],
    "an upgrade": [(b"connection", b"upgrade"), (b"upgrade", b"websocket")],
}


@pytest.mark.parametrize("name", TRUSTED_BY_OTHERS)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
async def test_no_other_header_replaces_the_key(name: str, method: str) -> None:
    assert await ask(method, AGENTS, TRUSTED_BY_OTHERS[name]) == 401


@pytest.mark.parametrize(
    "method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "QUERY", "get", "FOO"]
)
@pytest.mark.parametrize("path", [AGENTS, "/v1/tools/count", "/openapi.json", "/nowhere", "*"])
async def test_no_other_method_gets_past_the_gate(method: str, path: str) -> None:
    assert await ask(method, path) == 401


# From a path that needs no key to one that does, and the other way round.
TRICKS = [
    "{open}/../agents/",
    "{open}/..%2fagents/",
    "{open}/%2e%2e/agents/",
    "{open}/%2e%2e%2fagents/",
    "{open}/%252e%252e/agents/",
    "{open}/..;/agents/",
    "{open}/;/../agents/",
    "{open};/../agents/",
    "{open}%2f..%2fagents%2f",
    "{open}%00/../agents/",
    "{open}%0a",
    "{open}%20",
    "{open}%09",
    "{open}//",
    "{open}/./",
    "{open}/agents/",
    "{open}/.json",
    "{open}.json",
    "{open};x=/v1/agents/",
    "{open}%3f/../agents/",
    "{open}%23/../agents/",
    "{open}\\..\\agents\\",
    "/{open}",
    "//localhost{open}",
    "/.{open}",
    "/x/..{open}",
    "/%2e{open}",
    "/v1/agents/..{open}",
    "/v1/agents/../health",
    "/v1/agents/%2e%2e/health",
    "/v1/agents/..;/health",
    "/v1/agents/;/v1/health",
    "/v1/agents/?{open}",
    "/v1/agents/?path={open}",
    "/v1/agents/%3f{open}",
    "/v1/agents/%23{open}",
    "/v1//agents/",
    "//v1/agents/",
    "/v1/./agents/",
    "/v1/x/../agents/",
    "/v1/agents",
    "/v1/agents//",
    "/v1/agents/.",
    "/v1/agents/;",
    "/v1/agents;/",
    "/v1/agents.json",
    "/V1/AGENTS/",
    "/V1/HEALTH",
    "/v1/Health",
    "/v1/%68ealth/x",
    "/v1/agents%2f",
    "/v1%2fagents/",
    "/%76%31/agents/",
    "/v1/agents/%00",
    "/v1\\agents\\",
    "/latest/agents/",
    "/v2/agents/",
    "http://localhost:8283/v1/agents/",
    "agents",
    "",
]


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_path_gets_past_the_gate(trick: str) -> None:
    for open_path in OPEN_PATHS:
        for method in ("GET", "POST", "DELETE"):
            assert await ask(method, trick.replace("{open}", open_path)) == 401, open_path


@pytest.mark.parametrize("path", OPEN_PATHS)
async def test_an_open_path_opens_nothing_else(path: str) -> None:
    """It is answered by its own route or by none, whatever the method."""
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert await ask(method, path) == 405


async def test_a_websocket_is_not_accepted() -> None:
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {"type": "websocket", "path": AGENTS, "raw_path": AGENTS.encode(), "headers": []}
    await build_locked_app()(scope | {"query_string": b"", "root_path": ""}, receive, send)

    assert sent == ["websocket.close"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The application behind the real parser of requests."""
    config = uvicorn.Config(build_locked_app(), log_level="critical", lifespan="off", ws="none")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        # The socket listens already: connections wait there until the server is up.
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(WAIT_SECONDS)


RAW_REQUESTS = {
    "an absolute target": b"GET http://localhost/v1/agents/ HTTP/1.1\r\nHost: localhost\r\n",
    "an absolute target of another host": b"GET http://x/v1/agents/ HTTP/1.1\r\nHost: localhost\r\n",
    "two slashes": b"GET //v1/health/../agents/ HTTP/1.1\r\nHost: localhost\r\n",
    "a fragment": b"GET /v1/agents/#/v1/health HTTP/1.1\r\nHost: localhost\r\n",
    "an open path in a fragment": b"GET /v1/agents/%23/../../v1/health HTTP/1.1\r\nHost: localhost\r\n",
    "a folded header": b"GET /v1/agents/ HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n Authorization: Bearer open-sesame\r\n",
    "a key after the wrong key": b"GET /v1/agents/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\nAuthorization: Bearer open-sesame\r\n",
    "a space before the colon": b"GET /v1/agents/ HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer open-sesame\r\n",
    "an old version": b"GET /v1/agents/ HTTP/1.0\r\nHost: localhost\r\n",
    "two lengths": b"POST /v1/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 40\r\n",
    "a length and chunks": b"POST /v1/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "unknown chunks": b"POST /v1/health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n",
}
# What a smuggled request would be, behind the first.
SMUGGLED = b"GET /v1/agents/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("name", RAW_REQUESTS)
def test_no_request_line_and_no_framing_gets_past_the_gate(port: int, name: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(RAW_REQUESTS[name] + b"\r\n" + SMUGGLED)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))

    statuses = re.findall(rb"^HTTP/1\.1 (\d+)", answer, re.MULTILINE)
    assert statuses
    assert set(statuses) <= {b"400", b"401", b"405"}
