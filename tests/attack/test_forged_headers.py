"""Headers that claim another host, another client or another address of the server."""

from collections.abc import MutableMapping
from functools import cache
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from starlette.types import Receive, Scope, Send

from holdfast.adapters.bell.local import LocalBell
from holdfast.http.app import HttpSettings, build_app
from holdfast.http.host import parse_hostname
from holdfast.http.proxies import ForwardedHeaders

PROXY = "10.0.0.2"
OTHER_PROXY = "10.9.1.1"
STRANGER = "203.0.113.7"
TRUSTED = (ip_network(PROXY), ip_network("10.9.0.0/16"), ip_network("2001:db8::/32"))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8283", "localhost"),
        ("my_service.internal.:80", "my_service.internal."),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8283", "::1"),
        ("[0:0::1]", "::1"),
    ],
)
def test_a_plain_host_is_understood(host: str, name: str) -> None:
    assert parse_hostname(host) == name


STRANGE_HOSTS = [
    "",
    " ",
    "user@localhost",
    "user:password@localhost",
    "localhost, evil.example",
    "localhost evil.example",
    "localhost/",
    "localhost?",
    "localhost#evil.example",
    "localhost\\@evil.example",
    "localhost:",
    "localhost:80:80",
    "localhost:99999",
    "localhost:-1",
    "localhost:8O",
    "http://localhost",
    "[::1",
    "[",
    "::1",
    "[::1]evil.example",
    "[::1%25eth0]",
    "[127.0.0.1]",
    "[1:2:3]",
    "local%68ost",
    "lokalhöst",
    "localhost\x00",
    "localhost\t",
    "x" * 300,
]


@pytest.mark.parametrize("host", STRANGE_HOSTS)
async def test_a_strange_host_is_refused(host: str) -> None:
    assert parse_hostname(host) is None
    answer = await ask(HttpSettings(), "/v1/health/", [(b"host", host.encode())])
    assert (answer.status_code, "Host" in answer.json()["detail"]) == (400, True)


async def test_a_request_has_one_host() -> None:
    twice = [(b"host", b"localhost"), (b"host", b"localhost")]
    assert (await ask(HttpSettings(), "/v1/health/", twice)).status_code == 400
    assert (await ask(HttpSettings(), "/v1/health/", twice[:1])).status_code == 200


@cache
def application(settings: HttpSettings) -> FastAPI:
    app = build_app(None, settings)
    # All that the health check uses.
    app.state.services = SimpleNamespace(bell=LocalBell())
    return app


async def ask(
    settings: HttpSettings, path: str, headers: list[tuple[bytes, bytes]], peer: str = "127.0.0.1"
) -> Any:
    app = application(settings)

    async def with_headers(scope: Scope, receive: Receive, send: Send) -> None:
        # As they are: a client would correct some.
        await app({**scope, "headers": headers}, receive, send)

    transport = ASGITransport(with_headers, client=(peer, 1))
    async with AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path)


async def forward(peer: str, **headers: str | list[str]) -> MutableMapping[str, Any]:
    """The scope that the application gets from this peer with these headers."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    rows = [
        (name.replace("_", "-").encode(), value.encode())
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    scope: Scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": rows}
    await ForwardedHeaders(app, TRUSTED)(scope, None, None)  # type: ignore[arg-type] # never called
    return seen[0]


@pytest.mark.parametrize(
    "peer", [STRANGER, "127.0.0.1", "10.0.0.3", "::ffff:203.0.113.7", "testclient"]
)
async def test_what_a_stranger_says_about_its_client_is_ignored(peer: str) -> None:
    scope = await forward(
        peer,
        x_forwarded_for="198.51.100.1",
        x_forwarded_proto="https",
        x_forwarded_prefix="/evil",
        accept="*/*",
    )
    assert scope["client"] == (peer, 1)
    assert scope["scheme"] == "http"
    assert scope["headers"] == [(b"accept", b"*/*")]


@pytest.mark.parametrize("peer", [PROXY, OTHER_PROXY, f"::ffff:{PROXY}", "2001:db8::7"])
async def test_a_trusted_proxy_is_believed(peer: str) -> None:
    scope = await forward(peer, x_forwarded_for=STRANGER, x_forwarded_proto="https")
    assert scope["client"][0] == STRANGER
    assert scope["scheme"] == "https"


@pytest.mark.parametrize(
    ("values", "client"),
    [
        # A client that sends the header itself: the proxy adds the true address at the end.
        (f"198.51.100.1, {STRANGER}", STRANGER),
        (["198.51.100.1", STRANGER], STRANGER),
        (f"198.51.100.1, {STRANGER}, {OTHER_PROXY}", STRANGER),
        (f"{OTHER_PROXY}, {PROXY}", OTHER_PROXY),
        (f"{STRANGER}:4711", STRANGER),
        ("[2001:db9::1]:4711", "2001:db9::1"),
        (f"nonsense, {OTHER_PROXY}", OTHER_PROXY),
        ("nonsense", PROXY),
        ("", PROXY),
    ],
)
async def test_the_last_address_that_is_no_proxy_is_the_client(
    values: str | list[str], client: str
) -> None:
    assert (await forward(PROXY, x_forwarded_for=values))["client"][0] == client


@pytest.mark.parametrize("values", ["javascript", "https, http", ["https", "http"], ""])
async def test_a_scheme_that_is_not_clear_is_ignored(values: str | list[str]) -> None:
    assert (await forward(PROXY, x_forwarded_proto=values))["scheme"] == "http"


BEHIND_A_PROXY = HttpSettings(password="open-sesame", trusted_proxies=TRUSTED)


async def servers(peer: str, prefix: bytes) -> list[str]:
    """Where the OpenAPI document says that the server is."""
    headers = [
        (b"host", b"agents.example.com"),
        (b"authorization", b"Bearer open-sesame"),
        (b"x-forwarded-prefix", prefix),
    ]
    answer = await ask(BEHIND_A_PROXY, "/openapi.json", headers, peer)
    assert answer.status_code == 200
    return [server["url"] for server in answer.json().get("servers", [])]


async def test_a_prefix_is_part_of_the_servers_address() -> None:
    assert await servers(PROXY, b"/holdfast") == ["/holdfast"]
    assert await servers(PROXY, b"/v1") == ["/v1"]


@pytest.mark.parametrize(
    "prefix", [b"https://evil.example", b"//evil.example", b"evil", b"/a/../b", b"/a b", b"/"]
)
async def test_a_prefix_that_is_no_path_is_ignored(prefix: bytes) -> None:
    assert await servers(PROXY, prefix) == []
    assert await servers(STRANGER, b"/holdfast") == []


async def test_routes_and_errors_are_found_behind_a_prefix() -> None:
    headers = [(b"host", b"a"), (b"x-forwarded-prefix", b"/v1")]
    assert (await ask(BEHIND_A_PROXY, "/v1/health", headers, PROXY)).status_code == 200
    headers.append((b"authorization", b"Bearer open-sesame"))
    missing = await ask(BEHIND_A_PROXY, "/v1/nowhere", headers, PROXY)
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
