"""A network between one server and PostgreSQL, or Redis, that hangs or is cut for longer than a lease."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.client_objects import eventually
from tests.support.cluster import Cluster, ClusterServer
from tests.support.redis_server import RedisServer
from tests.support.stream_items import assert_ended, text_of
from tests.support.tcp_proxy import TcpProxy, proxy_postgres
from tests.support.weather_scenes import begin_answer, send_patiently

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60

Break = Callable[[TcpProxy], None]
BREAKS = [pytest.param(TcpProxy.hang, id="hangs"), pytest.param(TcpProxy.cut, id="is-cut")]


@pytest.fixture
def network(cluster: Cluster) -> Iterator[tuple[TcpProxy, str]]:
    """A proxy before the database, and the database's address through it."""
    with proxy_postgres(cluster.url) as proxied:
        yield proxied


@pytest.mark.parametrize("break_network", BREAKS)
def test_a_server_without_its_database_stops_its_runs_and_another_goes_on_with_them(
    cluster: Cluster, network: tuple[TcpProxy, str], break_network: Break
) -> None:
    proxy, url = network
    (other,) = cluster.need(1)
    lonely = cluster.start(HOLDFAST_DATABASE_URL=url)
    answering = begin_answer(cluster, lonely)
    first = cluster.provider.requests[0]
    assert cluster.find_owner(answering.run_id) is lonely

    break_network(proxy)

    # Nobody has told it: its own clock has.
    first.finished.block(WAIT_SECONDS)
    assert first.closed_early
    assert cluster.wait_for_end(answering.run_id) == "completed"
    assert cluster.find_owner(answering.run_id) is not lonely
    assert text_of(other.stream(answering.run_id)).endswith("Second try.")
    answering.gate.release()
    proxy.resume()
    eventually(lambda: lonely.process.log, lambda log: "lease.renewed" in log)
    assert text_of(lonely.stream(answering.run_id)).endswith("Second try.")
    assert send_patiently([lonely.address], answering.agent_id, "Back?")
    lonely.stop()


class RedisWeather:
    """Two servers with Redis, behind a proxy of its own each."""

    def __init__(self, cluster: Cluster, redis: RedisServer, stack: ExitStack) -> None:
        self.redis = redis
        target = Path(redis.url.removeprefix("unix://"))
        self.proxies = [stack.enter_context(TcpProxy(target)) for _ in range(2)]
        self.servers = [
            cluster.start(HOLDFAST_REDIS_URL=f"redis://{proxy.host}:{proxy.port}")
            for proxy in self.proxies
        ]


@pytest.fixture(scope="module")
def redis_weather(running_cluster: Cluster) -> Iterator[RedisWeather]:
    with RedisServer() as redis, ExitStack() as stack:
        weather = RedisWeather(running_cluster, redis, stack)
        yield weather
        for server in weather.servers:
            server.stop()


def _hang(weather: RedisWeather) -> None:
    for proxy in weather.proxies:
        proxy.hang()


def _cut(weather: RedisWeather) -> None:
    for proxy in weather.proxies:
        proxy.cut()


def _empty(weather: RedisWeather) -> None:
    weather.redis.clear()


def _stop(weather: RedisWeather) -> None:
    weather.redis.stop()


@pytest.mark.parametrize("spoil", [_hang, _cut, _empty, _stop])
def test_readers_elsewhere_get_everything_whatever_becomes_of_redis(
    cluster: Cluster,
    redis_weather: RedisWeather,
    pool: ThreadPoolExecutor,
    spoil: Callable[[RedisWeather], None],
) -> None:
    writer, reader = redis_weather.servers
    answering = begin_answer(cluster, writer)
    following = pool.submit(reader.stream, answering.run_id)
    assert _is_served(writer, answering.run_id)

    spoil(redis_weather)
    answering.gate.release()

    told = following.result(WAIT_SECONDS)
    assert text_of(told) == "I was about"
    assert_ended(told, "end_turn")
    _mend(redis_weather)
    again = begin_answer(cluster, writer)
    following = pool.submit(reader.stream, again.run_id)
    again.gate.release()
    assert_ended(following.result(WAIT_SECONDS), "end_turn")


def _is_served(server: ClusterServer, run_id: str) -> bool:
    return bool(server.http.get(f"/v1/runs/{run_id}").json()["status"] == "running")


def _mend(weather: RedisWeather) -> None:
    for proxy in weather.proxies:
        proxy.resume()
    weather.redis.stop()
    weather.redis.start()
