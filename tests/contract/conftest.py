"""A real Redis for the suites that need one."""

from collections.abc import Iterator

import pytest
from tests.redis_server import RedisServer


@pytest.fixture(scope="session")
def session_redis() -> Iterator[RedisServer]:
    """One that this test process alone uses, and that nobody stops."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(session_redis: RedisServer) -> str:
    """Keys have the run's id in them, so tests do not meet; what a test left is cleared all the same."""
    session_redis.clear()
    return session_redis.url


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """One of the test's own, to be stopped and started again."""
    with RedisServer() as server:
        yield server
