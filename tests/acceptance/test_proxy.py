"""Two servers behind the proxies of ``deploy/``: what clients see through them, also when a server is gone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.cluster import Cluster, run_cluster
from tests.support.proxies import CADDY, NGINX, Proxy
from tests.support.steady_load import SENDERS, Load
from tests.support.stream_items import read_lines_until
from tests.support.weather_scenes import create_agent

from holdfast.testing import Answer, Gate, ScriptedProvider

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
PROXIES = [
    pytest.param(
        proxy,
        id=proxy.name,
        marks=pytest.mark.skipif(bool(proxy.problem), reason=str(proxy.problem)),
    )
    for proxy in (NGINX, CADDY)
]


@dataclass
class Site:
    cluster: Cluster
    address: str

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=WAIT_SECONDS)


@pytest.fixture(params=PROXIES)
def site(request: pytest.FixtureRequest, blank_postgres_url: str, tmp_path: Path) -> Iterator[Site]:
    proxy: Proxy = request.param
    with (
        ScriptedProvider.in_thread(default="Hello.", check_script=False) as provider,
        run_cluster(tmp_path, blank_postgres_url, provider) as cluster,
    ):
        cluster.shared = {"HOLDFAST_TRUSTED_PROXIES": "127.0.0.1"}
        addresses = [server.address for server in cluster.need(2)]
        with proxy.run(tmp_path, addresses) as address:
            yield Site(cluster, address)
            cluster.assert_well()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(SENDERS) as threads:
        yield threads


def begin_stream(site: Site, http: httpx.Client, **wish: Any) -> tuple[Gate, httpx.Response]:
    """A stream of which the first words have been read; the rest waits at the gate."""
    gate = Gate("the rest of the answer")
    site.cluster.provider.script(Answer("I was about", gate))
    path = f"/v1/agents/{create_agent(site.cluster.alive[0])}/messages"
    body = {"input": "Hello?", "streaming": True, "stream_tokens": True} | wish
    stream = http.send(http.build_request("POST", path, json=body), stream=True)
    read_lines_until(stream.iter_lines(), "I was about")
    return gate, stream


def test_events_pass_the_proxy_at_once(site: Site) -> None:
    with site.http as http:
        gate, stream = begin_stream(site, http)
        gate.release()
        stream.close()


def test_a_client_that_leaves_is_noticed_behind_the_proxy(site: Site) -> None:
    with site.http as http:
        _, stream = begin_stream(site, http, on_disconnect="cancel")
        stream.close()

    (request,) = site.cluster.provider.requests
    request.finished.block(WAIT_SECONDS)
    assert request.closed_early


def test_a_server_that_is_killed_behind_the_proxy_costs_no_message(
    site: Site, pool: ThreadPoolExecutor
) -> None:
    load = Load(site.cluster, pool, [site.address])
    load.wait_for_answers(SENDERS)

    site.cluster.alive[1].kill()

    load.wait_for_answers(4 * SENDERS)
    load.finish()


def test_a_server_that_is_stopped_behind_the_proxy_costs_no_message(
    site: Site, pool: ThreadPoolExecutor
) -> None:
    load = Load(site.cluster, pool, [site.address])
    load.wait_for_answers(SENDERS)

    assert site.cluster.alive[1].stop() == 0

    load.wait_for_answers(4 * SENDERS)
    load.finish()
