"""A server that only executes runs answers health and metrics; all else is refused, in the form of the wire."""

from collections.abc import AsyncIterator, Callable

import pytest
from httpx import AsyncClient
from starlette.types import ASGIApp
from tests.support.http_app import use_app

from holdfast.http.app import WIRES, HttpSettings
from holdfast.http.worker_gate import WorkerGate
from holdfast.ports.services import Services

METRICS = "/metrics"
PASSWORD = "open-sesame"

Connect = Callable[[ASGIApp], AsyncClient]


@pytest.fixture(params=[None, PASSWORD], ids=["open", "with a password"])
async def client(
    request: pytest.FixtureRequest, services: Services, connect: Connect
) -> AsyncIterator[AsyncClient]:
    with use_app(services, HttpSettings(password=request.param)) as app:
        async with connect(WorkerGate(app, WIRES, WIRES.open_paths | {METRICS})) as client:
            yield client


@pytest.mark.parametrize("path", ["/v1/health/", "/v1/health", "/v1/ready/", "/latest/health"])
async def test_a_worker_says_that_it_is_well(client: AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/agents/"),
        ("POST", "/v1/agents/agent-1/messages"),
        ("GET", "/v1/health/more"),
        ("GET", "/v1/nothing"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
    ],
)
async def test_a_worker_refuses_everything_else_and_says_who_answers(
    client: AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, path)

    assert answer.status_code == 503
    assert answer.json() == {
        "detail": "This server executes runs and answers no requests (HOLDFAST_ROLE=worker). "
        "Ask a server with the role all or api."
    }


async def test_the_metrics_of_a_worker_are_those_of_its_application(client: AsyncClient) -> None:
    """Here it has none, or they need the password: the answer is not that of the gate."""
    assert (await client.get(METRICS)).status_code in (401, 404)
