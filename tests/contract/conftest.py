"""Fixtures of the port tests: a real Redis, and a model with a scripted provider."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.model_questions import KEYS, provider_settings
from tests.support.redis_server import RedisServer

from holdfast.adapters.models.router import ModelRouter
from holdfast.testing import ScriptedProvider


@pytest.fixture(scope="session")
def session_redis() -> Iterator[RedisServer]:
    """A Redis for this test process, which runs until the process ends."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(session_redis: RedisServer) -> str:
    """The shared Redis. Keys contain the run's id, so tests do not interfere; it is cleared after each test anyway."""
    session_redis.clear()
    return session_redis.url


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis for one test, which may stop and start it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider(default="Hello.", check_script=False) as running:
        yield running


@pytest.fixture
async def model(provider: ScriptedProvider) -> AsyncIterator[ModelRouter]:
    router = ModelRouter(provider_settings(provider))
    yield router
    await router.aclose()


@pytest.fixture(params=[*KEYS], ids=["chat", "responses", "anthropic", "google"])
def handle(request: pytest.FixtureRequest) -> str:
    return str(request.param)
