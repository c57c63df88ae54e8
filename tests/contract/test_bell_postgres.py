"""Bells of several servers on one PostgreSQL: rings reach the others, cost little, and outages are noticed."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from tests.support.bells import (
    CONSTANT_TOPICS,
    clear_rings,
    connect_postgres_bell,
    open_postgres_bell,
    record_payloads,
    start_waiting,
)
from tests.support.postgres_server import PostgresServer
from tests.support.tcp_proxy import proxy_postgres
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.bell.factory import open_bell
from holdfast.adapters.bell.listener import JOBS_CHANNEL
from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.bell.notify_connection import NotifyConnection
from holdfast.adapters.bell.postgres import PostgresBell
from holdfast.adapters.bell.sender import BATCH_SECONDS, MAX_PAYLOAD_BYTES, pack_topics
from holdfast.errors import SettingInvalid
from holdfast.ports.bell import CANCELS, RUNS, Bell, Watch, run_topic

pytestmark = pytest.mark.slow

# Nothing listens there.
UNREACHABLE_URL = "postgresql://me:the-password@127.0.0.1:1/x"
# For tests in which the answer does not come.
SHORT_ANSWER_SECONDS = 0.2


@pytest.fixture
async def bell(postgres_url: str) -> AsyncIterator[PostgresBell]:
    async with connect_postgres_bell(postgres_url) as connected:
        yield connected


@pytest.fixture
async def other(postgres_url: str, bell: PostgresBell) -> AsyncIterator[PostgresBell]:
    """The bell of another server on the same database."""
    async with connect_postgres_bell(postgres_url) as connected:
        yield connected


@pytest.fixture
def other_database_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_empty()
    yield url
    postgres_server.drop(url)


async def expect_ring(bell: Bell, topic: str) -> None:
    await asyncio.wait_for(bell.wait(topic), WAIT_SECONDS)


async def expect_wake(watch: Watch) -> None:
    await asyncio.wait_for(watch.wait(10 * WAIT_SECONDS), WAIT_SECONDS)


def logged_events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [item.getMessage() for item in caplog.records if item.name.startswith("holdfast")]


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def terminate(url: str, application: str) -> None:
    """End the connections of this name, as an administrator does."""
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE application_name = '{application}' AND datname = current_database()",
    )


@pytest.mark.parametrize("topic", CONSTANT_TOPICS)
async def test_a_ring_wakes_the_tasks_of_another_server(
    bell: PostgresBell, other: PostgresBell, topic: str
) -> None:
    tasks = [await start_waiting(other, topic) for _ in range(2)]
    with other.watch(topic) as watch:
        bell.ring(topic)
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_SECONDS)
        await expect_wake(watch)


async def test_another_server_remembers_a_ring_for_which_no_task_waited(
    bell: PostgresBell, other: PostgresBell
) -> None:
    bell.ring(CANCELS)
    # When the next notification has arrived, the first one has.
    with other.watch("later") as watch:
        bell.ring("later")
        await expect_wake(watch)
    await expect_ring(other, CANCELS)


async def test_a_ring_is_not_lost_while_another_server_reads_its_store(
    bell: PostgresBell, other: PostgresBell
) -> None:
    with other.watch(run_topic("run-1")) as watch, other.watch("later") as later:
        bell.ring(run_topic("run-1"))
        bell.ring("later")
        await expect_wake(later)
        await expect_wake(watch)


async def test_a_server_is_not_woken_by_its_own_notification(
    bell: PostgresBell, other: PostgresBell
) -> None:
    bell.ring(CANCELS)
    await expect_ring(bell, CANCELS)
    task = await start_waiting(bell, CANCELS)
    # The notification of the other one comes after that of the ring.
    await expect_ring(other, CANCELS)
    with bell.watch("later") as watch:
        other.ring("later")
        await expect_wake(watch)
    assert not task.done()
    bell.ring(CANCELS)
    await asyncio.wait_for(task, WAIT_SECONDS)


async def test_many_rings_at_once_cost_few_notifications(
    bell: PostgresBell, postgres_url: str
) -> None:
    topics = {run_topic(f"run-{number:036}") for number in range(1_000)}
    with record_payloads(postgres_url) as sent:
        for topic in topics:
            for _ in range(3):
                bell.ring(topic)
        await asyncio.to_thread(sent.receive_until, lambda: topics <= set(sent.topics))
    assert len(sent.payloads) < len(topics) / 10
    assert max(len(payload.encode()) for payload in sent.payloads) <= MAX_PAYLOAD_BYTES


async def test_rings_one_after_the_other_are_sent_in_batches(
    bell: PostgresBell, postgres_url: str
) -> None:
    topics = {run_topic(f"run-{number}") for number in range(200)}
    with record_payloads(postgres_url) as sent:
        started_at = time.monotonic()
        for topic in topics:
            bell.ring(topic)
            # Gives the sender time.
            await asyncio.to_thread(bool)
        await asyncio.to_thread(sent.receive_until, lambda: topics <= set(sent.topics))
        seconds = time.monotonic() - started_at
    assert len(sent.payloads) <= seconds / BATCH_SECONDS + 1


async def test_a_ring_for_this_server_only_is_not_sent(
    bell: PostgresBell, postgres_url: str
) -> None:
    with record_payloads(postgres_url) as sent:
        bell.ring(CANCELS, here_only=True)
        bell.ring("later")
        await asyncio.to_thread(sent.receive_until, lambda: "later" in sent.topics)
    assert sent.topics == ["later"]


async def test_a_server_without_peers_sends_no_rings(postgres_url: str) -> None:
    has_peers = False
    async with connect_postgres_bell(postgres_url, has_peers=lambda: has_peers) as bell:
        with record_payloads(postgres_url) as sent:
            bell.ring(CANCELS)
            has_peers = True
            bell.ring("later")
            await asyncio.to_thread(sent.receive_until, lambda: "later" in sent.topics)
        assert sent.topics == ["later"]


async def test_a_new_job_wakes_those_who_wait_for_runs(
    bell: PostgresBell, postgres_url: str
) -> None:
    task = await start_waiting(bell, RUNS)
    execute(postgres_url, f"""NOTIFY "{JOBS_CHANNEL}", '{{"type": "job_inserted"}}'""")
    await asyncio.wait_for(task, WAIT_SECONDS)


async def test_the_notifications_of_strangers_do_no_harm(
    bell: PostgresBell, other: PostgresBell, postgres_url: str
) -> None:
    for payload in ("", "x", "\n\n", "x\n"):
        execute(postgres_url, f"NOTIFY holdfast, '{payload}'")
    task = await start_waiting(bell, RUNS)
    other.ring(RUNS)
    await asyncio.wait_for(task, WAIT_SECONDS)


async def test_the_last_rings_before_the_end_are_sent(
    bell: PostgresBell, postgres_url: str
) -> None:
    async with connect_postgres_bell(postgres_url) as ending:
        # The second one is sent later than the first.
        ending.ring("first")
        ending.ring(RUNS)
    await expect_ring(bell, RUNS)


async def test_a_connection_that_ends_is_made_again_and_everybody_is_woken(
    bell: PostgresBell, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [await start_waiting(bell, topic) for topic in CONSTANT_TOPICS]
    with bell.watch(run_topic("run-1")) as watch:
        terminate(postgres_url, "holdfast-listen")
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_SECONDS)
        await expect_wake(watch)
    await eventually(lambda: bell.is_connected)
    await eventually(lambda: "bell.connected" in logged_events(caplog))
    assert logged_events(caplog) == ["bell.disconnected", "bell.connected"]


async def test_a_sending_connection_that_ends_is_made_again(
    bell: PostgresBell, other: PostgresBell, postgres_url: str
) -> None:
    terminate(postgres_url, "holdfast-notify")
    bell.ring(CANCELS)
    await expect_ring(other, CANCELS)


async def test_without_a_database_rings_stay_here_and_nothing_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_postgres_bell(UNREACHABLE_URL) as bell:
        task = await start_waiting(bell, RUNS)
        bell.ring(RUNS)
        await asyncio.wait_for(task, WAIT_SECONDS)
        # After several attempts.
        await eventually(lambda: bell._listener._pause_seconds > 0.5)
        bell.ring(RUNS)
        assert not bell.is_connected
    assert logged_events(caplog) == ["bell.disconnected"]
    assert "the-password" not in caplog.text


async def test_a_pooler_that_swallows_notifications_is_found_out(
    postgres_url: str, other_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Notifications of another database do not arrive either."""
    async with open_postgres_bell(
        postgres_url, listen_url=other_database_url, answer_seconds=SHORT_ANSWER_SECONDS
    ) as bell:
        await eventually(lambda: "bell.disconnected" in logged_events(caplog))
        assert not bell.is_connected
        assert logged_events(caplog) == ["bell.disconnected"]


async def test_the_address_for_listening_is_used_for_listening_only(postgres_url: str) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        async with connect_postgres_bell(postgres_url, listen_url=through_proxy) as bell:
            proxy.cut()
            with record_payloads(postgres_url) as sent:
                bell.ring(CANCELS)
                await asyncio.to_thread(sent.receive_until, lambda: CANCELS in sent.topics)
            await eventually(lambda: not bell.is_connected)


async def test_a_listening_connection_that_hangs_is_noticed_and_works_again_afterwards(
    postgres_url: str, bell: PostgresBell
) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        async with open_postgres_bell(
            postgres_url, listen_url=through_proxy, answer_seconds=1
        ) as listening:
            await eventually(lambda: listening.is_connected)
            proxy.hang()
            await eventually(lambda: not listening.is_connected)
            proxy.resume()
            await eventually(lambda: listening.is_connected)
            with listening.watch(run_topic("run-1")) as watch:
                bell.ring(run_topic("run-1"))
                await expect_wake(watch)


async def test_a_database_that_hangs_for_all_connections_is_noticed_and_used_again_afterwards(
    postgres_url: str, other: PostgresBell
) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        async with open_postgres_bell(through_proxy, answer_seconds=1) as bell:
            await eventually(lambda: bell.is_connected)
            proxy.hang()
            bell.ring(CANCELS)
            await eventually(lambda: not bell.is_connected)
            proxy.resume()
            await eventually(lambda: bell.is_connected)
            with other.watch(run_topic("run-1")) as watch:
                bell.ring(run_topic("run-1"))
                await expect_wake(watch)


async def test_connections_that_a_firewall_has_forgotten_are_made_again(
    postgres_url: str, other: PostgresBell, caplog: pytest.LogCaptureFixture
) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        async with open_postgres_bell(through_proxy, answer_seconds=1) as bell:
            await eventually(lambda: bell.is_connected)
            proxy.forget()
            await eventually(lambda: "bell.connected" in logged_events(caplog))
            with other.watch(run_topic("run-1")) as watch:
                bell.ring(run_topic("run-1"))
                await expect_wake(watch)


async def test_a_network_that_is_cut_is_noticed_and_used_again_afterwards(
    postgres_url: str, other: PostgresBell
) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        async with connect_postgres_bell(through_proxy) as bell:
            proxy.cut()
            await eventually(lambda: not bell.is_connected)
            proxy.resume()
            await eventually(lambda: bell.is_connected)
            await clear_rings(bell)
            other.ring(RUNS)
            await expect_ring(bell, RUNS)


async def test_a_bell_is_closed_while_the_database_hangs(postgres_url: str) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        async with connect_postgres_bell(through_proxy) as bell:
            proxy.hang()
            bell.ring(RUNS)
            async with asyncio.timeout(WAIT_SECONDS):
                await bell.aclose()
            assert not bell.is_connected


async def test_a_bell_is_opened_and_closed_while_the_database_hangs(postgres_url: str) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        proxy.hang()
        async with asyncio.timeout(WAIT_SECONDS), open_postgres_bell(through_proxy) as bell:
            bell.ring(RUNS)
            await expect_ring(bell, RUNS)
            assert not bell.is_connected


async def test_a_closed_bell_leaves_no_connection(postgres_url: str) -> None:
    async with connect_postgres_bell(postgres_url) as bell:
        bell.ring(RUNS)
    with psycopg.connect(postgres_url, autocommit=True) as connection:

        def count_connections() -> int:
            # Of this database: other tests may have servers on others.
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'holdfast-%' "
                "AND datname = current_database()"
            )
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0])

        await eventually(lambda: count_connections() == 0)


async def test_the_database_decides_which_bell_is_opened(postgres_url: str) -> None:
    here = await open_bell("sqlite:///holdfast.db", listen_url=None, has_peers=lambda: True)
    there = await open_bell(postgres_url, listen_url=None, has_peers=lambda: True)
    try:
        assert (type(here), type(there)) == (LocalBell, PostgresBell)
        assert here.is_connected
        await eventually(lambda: there.is_connected)
    finally:
        await here.aclose()
        await there.aclose()


def test_a_statement_whose_answer_does_not_come_is_broken_off(postgres_url: str) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        connection = NotifyConnection(through_proxy, name="holdfast-test")
        connection.connect().execute("SELECT 1")
        proxy.hang()
        with pytest.raises(psycopg.OperationalError), connection.limit(SHORT_ANSWER_SECONDS):
            connection.connect().execute("SELECT 1")
        connection.drop()
        proxy.resume()
        connection.connect().execute("SELECT 1")
        connection.end()
        with pytest.raises(psycopg.OperationalError):
            connection.connect().execute("SELECT 1")
        connection.drop()


def test_an_address_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SettingInvalid):
        PostgresBell("nonsense", has_peers=lambda: True)


def test_payloads_are_as_full_as_they_may_be_and_lose_no_topic() -> None:
    topics = [f"{number}-é-{'x' * (number % 90)}" for number in range(1_000)]
    payloads = pack_topics("me", topics)
    assert [topic for payload in payloads for topic in payload.split("\n")[1:]] == topics
    assert {payload.split("\n")[0] for payload in payloads} == {"me"}
    sizes = [len(payload.encode()) for payload in payloads]
    assert all(MAX_PAYLOAD_BYTES - 100 < size <= MAX_PAYLOAD_BYTES for size in sizes[:-1])
    assert pack_topics("me", []) == []
