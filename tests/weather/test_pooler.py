"""Servers whose way to PostgreSQL is a real PgBouncer, in each of its modes, and one that is restarted."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.client_objects import as_dict, eventually
from tests.support.cluster import Cluster, ClusterServer, run_cluster
from tests.support.pgbouncer import PGBOUNCER_PROBLEM, PgBouncer, run_pgbouncer
from tests.support.postgres_server import PostgresServer
from tests.support.server_launcher import run_forked
from tests.support.server_process import START_SECONDS, clean_environment
from tests.support.steady_load import SENDERS, Load
from tests.support.stream_items import read_lines_until
from tests.support.tool_sources import SHOUT
from tests.support.weather_scenes import begin_answer, create_agent
from tests.support.wire_approvals import allow, answer, pause

from holdfast.testing import Answer, Gate, ScriptedProvider

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(PGBOUNCER_PROBLEM), reason=str(PGBOUNCER_PROBLEM)),
]

WAIT_SECONDS = 60
# So many that the driver would prepare statements on each connection of both servers.
TURNS = 20
# Fewer than the servers have connections of their own, so that each gets those of the others; in session mode as many.
SIZES = {"transaction": "4", "session": "22"}


class PooledCluster:
    """Two servers behind a pooler; whether they get notifications."""

    def __init__(self, cluster: Cluster, pooler: PgBouncer, *, is_notified: bool) -> None:
        self.cluster = cluster
        self.pooler = pooler
        self.is_notified = is_notified
        self.here, self.there = cluster.need(2)


@contextmanager
def run_pooled(
    url: str, provider: ScriptedProvider, folder: Path, *, pool_mode: str, listens_past: bool
) -> Iterator[PooledCluster]:
    with (
        run_pgbouncer(
            url,
            pool_mode=pool_mode,
            default_pool_size=SIZES[pool_mode],
            # Each transaction gets another connection.
            server_round_robin="1",
        ) as pooler,
        run_cluster(folder, url, provider) as cluster,
    ):
        cluster.shared = {"HOLDFAST_DATABASE_URL": pooler.url}
        if listens_past:
            cluster.shared["HOLDFAST_LISTEN_URL"] = url
        is_notified = listens_past or pool_mode == "session"
        yield PooledCluster(cluster, pooler, is_notified=is_notified)
        cluster.assert_well()


@pytest.fixture(
    scope="module",
    params=[("transaction", True), ("transaction", False), ("session", False)],
    ids=["transaction-and-listen-url", "transaction", "session"],
)
def running_pooled(
    request: pytest.FixtureRequest,
    postgres_server: PostgresServer,
    running_provider: ScriptedProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PooledCluster]:
    pool_mode, listens_past = request.param
    with run_pooled(
        postgres_server.create_empty(),
        running_provider,
        tmp_path_factory.mktemp("pooled"),
        pool_mode=pool_mode,
        listens_past=listens_past,
    ) as made:
        yield made


@pytest.fixture
def pooled(running_pooled: PooledCluster, provider: ScriptedProvider) -> PooledCluster:
    return running_pooled


def test_turns_at_both_servers_work_behind_a_pooler(pooled: PooledCluster) -> None:
    agent_id = create_agent(pooled.here)

    for number in range(TURNS):
        server = (pooled.here, pooled.there)[number % 2]
        reply = server.client.agents.messages.create(agent_id, input=f"message {number}")
        assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"


def test_a_run_is_followed_live_at_the_other_server_behind_a_pooler(pooled: PooledCluster) -> None:
    gate = Gate("the rest of the answer")
    pooled.cluster.provider.script(Answer("I was about", gate))
    wish = {"input": "Hello?", "streaming": True, "stream_tokens": True, "background": True}
    path = f"/v1/agents/{create_agent(pooled.here)}/messages"
    with pooled.here.http.stream("POST", path, json=wish) as sent:
        run_id = read_lines_until(sent.iter_lines(), "I was about")[0]["run_id"]

        path = f"/v1/runs/{run_id}/stream"
        with pooled.there.http.stream("POST", path, json={"starting_after": 0}) as followed:
            lines = followed.iter_lines()
            read_lines_until(lines, "I was about")
            gate.release()
            assert "data: [DONE]" in lines


def test_a_run_is_cancelled_at_the_other_server_behind_a_pooler(pooled: PooledCluster) -> None:
    answering = begin_answer(pooled.cluster, pooled.here)

    path = f"/v1/agents/{answering.agent_id}/messages/cancel"
    assert pooled.there.http.post(path, json={}).status_code == 200

    assert pooled.cluster.wait_for_end(answering.run_id) == "cancelled"
    (request,) = pooled.cluster.provider.requests
    request.finished.block(WAIT_SECONDS)
    assert request.closed_early


def test_a_call_is_approved_at_the_other_server_behind_a_pooler(pooled: PooledCluster) -> None:
    tool = pooled.here.client.tools.upsert(source_code=SHOUT, default_requires_approval=True)
    agent_id = create_agent(pooled.here)
    pooled.here.client.agents.tools.attach(tool.id, agent_id=agent_id)
    pause(pooled.here.client, pooled.cluster.provider, agent_id)

    said = answer(pooled.there.client, agent_id, allow())

    assert [row["message_type"] for row in said][-1] == "assistant_message"
    assert any(row.get("tool_return") == "HI!" for row in said)


def test_operators_are_told_whether_notifications_pass_the_pooler(
    pooled: PooledCluster, tmp_path: Path
) -> None:
    expected = "ok" if pooled.is_notified else "polling"
    if not pooled.is_notified:
        # Not only because it has just been started.
        eventually(lambda: pooled.here.process.log, lambda log: "bell.disconnected" in log)
    eventually(lambda: health(pooled.here), lambda told: told["notifications"] == expected)
    eventually(
        lambda: run_holdfast(tmp_path, "servers", "list", "--url", pooled.here.address),
        lambda listed: listed.count("polling") == (0 if pooled.is_notified else 2),
    )
    checked = run_holdfast(tmp_path, "doctor", **pooled.cluster.variables())
    if pooled.is_notified:
        assert "ok notifications They arrive." in checked
    else:
        assert "note notifications They do not arrive" in checked
        assert "set HOLDFAST_LISTEN_URL to an address of the same database without it" in checked


def health(server: ClusterServer) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/v1/health/").json()
    return found


def run_holdfast(home: Path, *arguments: str, **variables: str) -> str:
    """What a command prints, as one line."""
    done = run_forked([*arguments], clean_environment(home, **variables), START_SECONDS)
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("pool_mode", [*SIZES])
def test_a_pooler_that_is_restarted_under_load_loses_no_message(
    blank_postgres_url: str,
    provider: ScriptedProvider,
    pool: ThreadPoolExecutor,
    tmp_path: Path,
    pool_mode: str,
) -> None:
    with run_pooled(
        blank_postgres_url, provider, tmp_path, pool_mode=pool_mode, listens_past=True
    ) as pooled:
        load = Load(pooled.cluster, pool)
        answering = begin_answer(pooled.cluster, pooled.here)
        load.wait_for_answers(2 * SENDERS)

        pooled.pooler.stop()
        answering.gate.release()
        pooled.pooler.start()

        load.wait_for_answers(2 * SENDERS)
        load.finish()
        assert pooled.cluster.wait_for_end(answering.run_id) == "completed"
