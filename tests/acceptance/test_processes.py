"""A server of several processes on PostgreSQL: one address, one Ctrl-C, and a process that dies is replaced."""

import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from tests.support.server_process import Command, ServerProcess, StartServer
from tests.support.waiting import eventually
from tests.support.wire_server import connect, connect_plainly

pytestmark = pytest.mark.slow


@pytest.fixture
def server(start_server: StartServer, postgres_url: str) -> ServerProcess:
    return start_server("--processes", "2", HOLDFAST_DATABASE_URL=postgres_url)


def processes(server: ServerProcess) -> dict[int, psutil.Process]:
    """Those that serve, by their pids."""
    return {child.pid: child for child in psutil.Process(server.pid).children()}


async def wait_for_two(server: ServerProcess, *gone: int) -> dict[int, psutil.Process]:
    await eventually(lambda: len(processes(server).keys() - {*gone}) == 2)
    return processes(server)


def ask_often(server: ServerProcess) -> set[int]:
    """The statuses of the answers to new connections, which any of the processes may accept."""
    return {httpx.get(f"{server.address}/v1/agents/").status_code for _ in range(20)}


async def test_the_processes_answer_on_one_address_and_greet_once(server: ServerProcess) -> None:
    await wait_for_two(server)

    assert ask_often(server) == {200}
    assert server.greeting.count("listens on") == 1
    agent = connect(server.address).agents.create(model="holdfast/guide")
    with connect_plainly(server.address) as http:
        assert http.get(f"/v1/agents/{agent.id}").status_code == 200


async def test_a_process_that_is_killed_is_replaced_while_the_other_answers(
    server: ServerProcess,
) -> None:
    killed, other = await wait_for_two(server)

    os.kill(killed, signal.SIGKILL)

    await eventually(lambda: "process.ended" in server.log)
    assert ask_often(server) == {200}
    assert other in await wait_for_two(server, killed)
    assert server.stop() == 0


async def test_connections_need_not_wait_for_a_process_that_hangs(server: ServerProcess) -> None:
    hanging, _ = (await wait_for_two(server)).values()
    hanging.suspend()
    try:
        with ExitStack() as stack:
            clients = [stack.enter_context(connect_plainly(server.address)) for _ in range(32)]
            with ThreadPoolExecutor(len(clients)) as pool:
                answers = pool.map(lambda http: http.get("/v1/health/"), clients)
            assert {answer.status_code for answer in answers} == {200}
    finally:
        hanging.resume()
    assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
async def test_one_signal_stops_all(server: ServerProcess, number: int) -> None:
    living = (await wait_for_two(server)).values()

    os.kill(server.pid, number)

    assert server.wait_for_exit() == 0
    assert not any(process.is_running() for process in living)
    assert "Traceback" not in server.log


@pytest.mark.skipif(
    sys.platform != "linux", reason="Only Linux tells a process that its parent died."
)
async def test_nobody_listens_any_more_if_the_supervisor_is_killed(server: ServerProcess) -> None:
    living = (await wait_for_two(server)).values()

    os.kill(server.pid, signal.SIGKILL)

    await eventually(lambda: not any(process.is_running() for process in living))
    with connect_plainly(server.address) as http, pytest.raises(httpx.ConnectError):
        http.get("/v1/health/")


def test_a_database_that_does_not_answer_is_reported_once(holdfast: Command) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://me@127.0.0.1:{closed.getsockname()[1]}/none"
        ended = holdfast("server", "--processes", "3", HOLDFAST_PORT="0", HOLDFAST_DATABASE_URL=url)

    assert ended.returncode == 1
    assert [line.startswith("holdfast: ") for line in ended.stderr.splitlines()].count(True) == 1
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_reported_as_for_one_process(
    holdfast: Command, postgres_url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = holdfast(
            "server", "--processes", "2", HOLDFAST_PORT=port, HOLDFAST_DATABASE_URL=postgres_url
        )

    assert ended.returncode == 1
    assert ended.stderr == (
        f"holdfast: Cannot listen on 127.0.0.1, port {port}: another program listens there. "
        "Stop it, or choose another port with --port.\n"
    )


def test_sqlite_is_refused_for_several_processes(holdfast: Command) -> None:
    ended = holdfast("server", "--processes", "2")

    assert ended.returncode == 2
    assert ended.stderr.startswith("holdfast: SQLite is for one process")


def test_a_worker_answers_health_and_nothing_else(
    start_server: StartServer, postgres_url: str
) -> None:
    worker = start_server("--role", "worker", HOLDFAST_DATABASE_URL=postgres_url)

    with connect_plainly(worker.address) as http:
        assert http.get("/v1/health/").status_code == 200
        refused = http.get("/v1/agents/")
    assert refused.status_code == 503
    assert "HOLDFAST_ROLE=worker" in refused.json()["detail"]
    assert worker.stop() == 0
