"""Who is let in: passwords, hosts, origins, and how much a request may bring."""

from collections.abc import AsyncIterator, Callable

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.support.http_app import use_app

from holdfast.http.app import HttpSettings, build_app
from holdfast.ports.services import Services

PASSWORD = "open-sesame"
LIMIT = 10_000

Connect = Callable[[FastAPI], AsyncClient]


@pytest.fixture
async def client_with_password(services: Services, connect: Connect) -> AsyncIterator[AsyncClient]:
    with use_app(services, HttpSettings(password=PASSWORD)) as app:
        async with connect(app) as client:
            yield client


@pytest.fixture
async def client_with_small_limit(
    services: Services, connect: Connect
) -> AsyncIterator[AsyncClient]:
    with use_app(services, HttpSettings(max_body_bytes=LIMIT)) as app:
        async with connect(app) as client:
            yield client


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {PASSWORD}"},
        {"authorization": f"bearer {PASSWORD}"},
        {"x-bare-password": f"password {PASSWORD}"},
    ],
)
async def test_the_password_opens_the_server(
    client_with_password: AsyncClient, headers: dict[str, str]
) -> None:
    assert (await client_with_password.get("/v1/blocks/", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": PASSWORD},
        {"x-bare-password": PASSWORD},
        {"authorization": f"Bearer {PASSWORD[:-1]}"},
        {"authorization": f"Bearer {PASSWORD}x"},
    ],
)
async def test_without_the_password_nothing_is_answered(
    client_with_password: AsyncClient, headers: dict[str, str]
) -> None:
    for path in ("/v1/blocks/", "/openapi.json", "/docs", "/nowhere"):
        answer = await client_with_password.get(path, headers=headers)
        assert (answer.status_code, answer.json()) == (401, {"detail": "Unauthorized"})


async def test_a_password_may_have_any_characters(services: Services, connect: Connect) -> None:
    async with connect(build_app(services, HttpSettings(password="сезам"))) as client:
        headers = [(b"authorization", "Bearer сезам".encode())]
        assert (await client.get("/v1/blocks/", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/", "/latest/health", "/latest/health/"],
)
async def test_probes_need_no_password(client_with_password: AsyncClient, path: str) -> None:
    answer = await client_with_password.get(path, headers={"host": "10.1.2.3:80"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


async def test_with_a_password_any_host_and_origin_may_ask(
    client_with_password: AsyncClient,
) -> None:
    headers = {
        "authorization": f"Bearer {PASSWORD}",
        "host": "agents.example.com",
        "origin": "https://app.example.com",
        "sec-fetch-site": "cross-site",
    }
    assert (await client_with_password.get("/v1/blocks/", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8283", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:9", "[::1]:8283"]
)
async def test_without_a_password_loopback_names_are_answered(
    client: AsyncClient, host: str
) -> None:
    assert (await client.get("/v1/blocks/", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example:8283",
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "[::2]",
        "0.0.0.0",
    ],
)
async def test_a_rebound_name_is_refused(client: AsyncClient, host: str) -> None:
    answer = await client.get("/v1/blocks/", headers={"host": host})
    assert answer.status_code == 403
    assert "HOLDFAST_PASSWORD" in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_page_of_another_origin_is_refused(
    client: AsyncClient, headers: dict[str, str]
) -> None:
    answer = await client.post("/v1/tools/add-base-tools", headers=headers)
    assert answer.status_code == 403
    assert (await client.get("/v1/tools/count")).json() == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "none"},
    ],
)
async def test_a_page_on_this_machine_may_ask(client: AsyncClient, headers: dict[str, str]) -> None:
    assert (await client.get("/v1/blocks/", headers=headers)).status_code == 200


async def test_an_operator_may_open_other_hosts_but_not_other_origins(
    services: Services, connect: Connect
) -> None:
    async with connect(build_app(services, HttpSettings(loopback_only_hosts=False))) as client:
        inside = {"host": "holdfast.internal"}
        assert (await client.get("/v1/blocks/", headers=inside)).status_code == 200
        same = inside | {"origin": "http://holdfast.internal"}
        assert (await client.get("/v1/blocks/", headers=same)).status_code == 200
        other = inside | {"origin": "http://evil.example"}
        assert (await client.get("/v1/blocks/", headers=other)).status_code == 403


async def test_an_announced_body_over_the_limit_is_refused_at_once(
    client_with_small_limit: AsyncClient,
) -> None:
    answer = await client_with_small_limit.post("/v1/blocks/", content=b"x" * (LIMIT + 1))
    assert answer.status_code == 413
    assert str(LIMIT) in answer.json()["detail"]
    assert "HOLDFAST_MAX_BODY_BYTES" in answer.json()["detail"]


async def test_a_body_of_unknown_length_is_counted_while_it_comes(
    client_with_small_limit: AsyncClient,
) -> None:
    pulled = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pulled
        while True:
            pulled += 1
            yield b" " * 1000

    answer = await client_with_small_limit.post(
        "/v1/blocks/", content=endless(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413
    assert "HOLDFAST_MAX_BODY_BYTES" in answer.json()["detail"]
    assert pulled <= LIMIT / 1000 + 1


async def test_a_body_at_the_limit_is_taken(client_with_small_limit: AsyncClient) -> None:
    body = b'{"label": "a", "value": "%s"}'
    filled = body % (b"x" * (LIMIT - len(body) + 2))
    assert len(filled) == LIMIT
    answer = await client_with_small_limit.post(
        "/v1/blocks/", content=filled, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200
