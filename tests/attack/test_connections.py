"""Connections of strangers: headers that never end, and requests that are never complete."""

import asyncio
import errno
import gc
import json
import re
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx
import psutil  # type: ignore[import-untyped] # it has no types
import pytest
from tests.support.server_process import HOLDFAST, ServerProcess
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.models.router import ModelRouter
from holdfast.assembly.warm_up import warm_up

pytestmark = pytest.mark.slow

FEW_FILES = 256
HALF_A_REQUEST = b"GET /v1/health/ HTTP/1.1\r\nHost: localhost\r\n"
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = ServerProcess.start(
        tmp_path_factory.mktemp("home"),
        HOLDFAST_HEADER_SECONDS="1",
        HOLDFAST_BODY_SECONDS="1",
        HOLDFAST_MAX_PENDING_CONNECTIONS="40",
        HOLDFAST_MAX_PENDING_PER_ADDRESS="20",
    )
    yield started
    started.stop()


@pytest.fixture(scope="module")
def patient_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Waits for requests longer than a test takes, so that only their number can end them."""
    started = ServerProcess.start(
        tmp_path_factory.mktemp("home"),
        HOLDFAST_HEADER_SECONDS="600",
        HOLDFAST_MAX_PENDING_CONNECTIONS="30",
        HOLDFAST_MAX_PENDING_PER_ADDRESS="20",
        HOLDFAST_TRUSTED_PROXIES="127.0.0.2",
    )
    yield started
    started.stop()


def open_connection(address: str, source: str = "127.0.0.1") -> socket.socket:
    parts = urlsplit(address)
    assert parts.hostname
    return socket.create_connection(
        (parts.hostname, parts.port or 80), timeout=WAIT_SECONDS, source_address=(source, 0)
    )


@contextmanager
def half_sent(
    address: str, count: int, source: str = "127.0.0.1", sent: bytes = HALF_A_REQUEST
) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(open_connection(address, source))
            # The server may have closed it already.
            with suppress(OSError):
                connection.sendall(sent)
            connections.append(connection)
        yield connections


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither answered nor closed."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def count_open(connections: list[socket.socket]) -> int:
    return sum(is_open(connection) for connection in connections)


def read_answer(connection: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    connection.settimeout(WAIT_SECONDS)
    answer = b""
    with suppress(ConnectionError):
        while piece := connection.recv(65536):
            answer += piece
    return answer


def exchange(server: ServerProcess, sent: bytes) -> bytes:
    """What the server answers before it closes. It may close while the rest is still being sent."""
    with open_connection(server.address) as connection:
        with suppress(ConnectionError):
            connection.sendall(sent)
        return read_answer(connection)


def is_healthy(server: ServerProcess) -> bool:
    answer = httpx.get(f"{server.address}/v1/health/", timeout=WAIT_SECONDS, verify=False)
    return answer.status_code == 200


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def memory(server: ServerProcess) -> int:
    used: int = psutil.Process(server.pid).memory_info().rss
    return used


def work(server: ServerProcess) -> float:
    """Seconds of CPU so far."""
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


async def test_only_so_many_half_sent_requests_of_one_address_stay_open(
    patient_server: ServerProcess,
) -> None:
    with half_sent(patient_server.address, 200) as connections:
        assert is_healthy(patient_server)
        await eventually(lambda: count_open(connections) <= 20)

        # The newest ones stay: whoever is slow and honest can still finish.
        assert count_open(connections[-20:]) == 20
        connections[-1].setblocking(True)
        connections[-1].sendall(b"Connection: close\r\n\r\n")
        assert status(read_answer(connections[-1])) == 200
        assert is_healthy(patient_server)


async def test_a_trusted_proxy_has_only_the_limit_for_all(patient_server: ServerProcess) -> None:
    with half_sent(patient_server.address, 100, source="127.0.0.2") as connections:
        await eventually(lambda: count_open(connections) <= 30)
        assert count_open(connections) == 30


async def test_readers_and_idle_connections_are_not_counted(server: ServerProcess) -> None:
    """More than the limits allow to be incomplete, and all of them are answered twice."""
    async with httpx.AsyncClient(
        base_url=server.address, verify=False, timeout=60, limits=httpx.Limits(max_connections=60)
    ) as client:
        for _ in range(2):
            answers = await asyncio.gather(*(client.get("/v1/health/") for _ in range(60)))
            assert {answer.status_code for answer in answers} == {200}


def post(path: str, sent: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n".encode() + sent


# What is sent, and the statuses that are answered before the connection is closed.
LATE_REQUESTS = {
    "nothing": (b"", []),
    "half a header": (HALF_A_REQUEST, [408]),
    "half of the next header": (HALF_A_REQUEST + b"\r\n" + HALF_A_REQUEST, [200, 408]),
    "half a body": (post("/v1/blocks/", b"{"), [408]),
    "half a body that nobody reads": (post("/v1/health/", b"{"), [405]),
    "no body": (post("/nowhere", b""), [404]),
}


async def test_requests_that_are_not_complete_in_time_end_their_connections(
    server: ServerProcess,
) -> None:
    answers = await asyncio.gather(
        *(asyncio.to_thread(exchange, server, sent) for sent, _ in LATE_REQUESTS.values())
    )
    found = {
        name: [int(code) for code in re.findall(rb"HTTP/1.1 (\d+)", answer)]
        for name, answer in zip(LATE_REQUESTS, answers, strict=True)
    }
    assert found == {name: statuses for name, (_, statuses) in LATE_REQUESTS.items()}


def test_a_client_that_sends_a_byte_now_and_then_is_not_waited_for(server: ServerProcess) -> None:
    with open_connection(server.address) as connection:
        connection.sendall(post("/nowhere", b""))
        connection.settimeout(0.2)
        answer = b""
        for _ in range(90):
            try:
                with suppress(TimeoutError):
                    piece = connection.recv(65536)
                    answer += piece
                    if not piece:
                        break
                connection.sendall(b"x")
            except ConnectionError:
                break
        else:
            pytest.fail("The connection is still open.")
    assert status(answer) == 404


ENDLESS_HEADERS = {
    "one field": b"GET /v1/health/ HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 60 * MEGABYTE,
    "the target": b"GET /" + b"x" * 60 * MEGABYTE,
    "small fields": HALF_A_REQUEST + b"A: b\r\n" * (40 * MEGABYTE // 6),
    "empty lines": b"\r\n" * 30 * MEGABYTE,
    "trailers": b"POST /v1/health/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\nx\r\n0\r\nX-Long: " + b"x" * 60 * MEGABYTE,
}


@pytest.mark.parametrize("sent", ENDLESS_HEADERS.values(), ids=ENDLESS_HEADERS)
async def test_a_header_without_end_takes_neither_memory_nor_time(
    server: ServerProcess, sent: bytes
) -> None:
    before = memory(server)
    attack = asyncio.create_task(asyncio.to_thread(exchange, server, sent))
    async with httpx.AsyncClient(base_url=server.address, timeout=5, verify=False) as client:
        while not attack.done():
            assert (await client.get("/v1/health/")).status_code == 200
    answer = await attack
    assert status(answer) in {431, 405}
    assert memory(server) - before < 20 * MEGABYTE


def test_a_header_within_the_limits_is_taken(server: ServerProcess) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 400) for number in range(150))
    answer = exchange(server, HALF_A_REQUEST + fields + b"Connection: close\r\n\r\n")
    assert status(answer) == 200


def test_more_fields_than_allowed_are_refused(server: ServerProcess) -> None:
    assert status(exchange(server, HALF_A_REQUEST + b"A: b\r\n" * 201 + b"\r\n")) == 431


def test_pipelined_requests_and_large_bodies_are_no_headers(server: ServerProcess) -> None:
    body = b'{"label": "long", "value": "' + b"x" * 90_000 + b'"}'
    post = b"POST /v1/blocks/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    health = HALF_A_REQUEST + b"X-Padding: " + b"x" * 30_000 + b"\r\n"
    sent = post + body + (health + b"\r\n") * 4 + health + b"Connection: close\r\n\r\n"

    answer = exchange(server, sent)

    assert answer.count(b"HTTP/1.1 200 OK") == 6


async def test_requests_that_wait_for_others_of_their_connection_take_no_memory(
    server: ServerProcess,
) -> None:
    """Nobody reads the answers, so they are never sent, and the requests behind them never begin."""
    before = memory(server)
    with open_connection(server.address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(2)
        with suppress(TimeoutError, ConnectionError):
            for _ in range(100):
                connection.sendall((HALF_A_REQUEST + b"\r\n") * 2_000)
        assert is_healthy(server)
        assert memory(server) - before < 20 * MEGABYTE


def test_only_so_many_requests_of_one_connection_wait(server: ServerProcess) -> None:
    sent = (HALF_A_REQUEST + b"\r\n") * 30 + HALF_A_REQUEST + b"Connection: close\r\n\r\n"
    assert exchange(server, sent).count(b"HTTP/1.1 200 OK") == 31
    assert exchange(server, (HALF_A_REQUEST + b"\r\n") * 1_000).count(b"HTTP/1.1 200 OK") < 1_000


STREAMED = {"stream_tokens": True, "on_disconnect": "cancel"}


@contextmanager
def open_stream(server: ServerProcess, agent: str) -> Iterator[socket.socket]:
    """The answer to it has begun."""
    body = json.dumps({"input": "Count to 100.", **STREAMED}).encode()
    head = f"POST /v1/agents/{agent}/messages/stream HTTP/1.1\r\nHost: localhost\r\n"
    with open_connection(server.address) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert status(connection.recv(65536)) == 200
        yield connection


def create_agent(server: ServerProcess) -> str:
    answer = httpx.post(f"{server.address}/v1/agents/", json={}, timeout=60, verify=False)
    agent: str = answer.json()["id"]
    return agent


def test_nothing_is_written_into_the_answer_of_an_earlier_request(server: ServerProcess) -> None:
    with open_stream(server, create_agent(server)) as connection:
        # One request that waits, and one that is none.
        connection.sendall(HALF_A_REQUEST + b"\r\n" + b"nonsense\r\n\r\n")
        assert b"400 Bad Request" not in read_answer(connection)


async def test_a_client_that_leaves_ends_the_answer_before_the_one_that_waits(
    server: ServerProcess,
) -> None:
    agent = create_agent(server)
    with open_stream(server, agent) as connection:
        connection.sendall(HALF_A_REQUEST + b"\r\n")

    def is_cancelled() -> bool:
        path = f"{server.address}/v1/runs/?agent_id={agent}"
        runs = httpx.get(path, timeout=WAIT_SECONDS, verify=False).json()
        return [run["status"] for run in runs] == ["cancelled"]

    await eventually(is_cancelled)
    assert "Traceback" not in server.log


CHUNKED = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


TINY_PIECES = b"1\r\nx\r\n" * 6_000_000


@pytest.mark.parametrize(
    ("path", "statuses"),
    [("/v1/blocks/", [b"413"]), ("/v1/health/", [b"405"])],
    ids=["read", "answered before"],
)
def test_a_body_has_only_so_many_pieces(
    patient_server: ServerProcess, path: str, statuses: list[bytes]
) -> None:
    """A small one is as much work as a large one."""
    before = work(patient_server)
    answer = exchange(patient_server, CHUNKED % path.encode() + TINY_PIECES)
    # The answer may be lost if the server closes while the client sends.
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) in (statuses, [])
    # All of them would take several seconds.
    assert work(patient_server) - before < 2


TARGETS = {
    "GET http://localhost/v1/health/ HTTP/1.1\r\nHost: localhost": 200,
    "GET http://localhost:1/v1/health/ HTTP/1.1\r\nHost: localhost:1": 200,
    "GET http://evil.example/v1/health/ HTTP/1.1\r\nHost: localhost": 400,
    "GET http://localhost@evil.example/v1/health/ HTTP/1.1\r\nHost: localhost": 400,
    "GET http://localhost HTTP/1.1\r\nHost: localhost": 400,
    "GET evil.example/v1/health/ HTTP/1.1\r\nHost: localhost": 400,
    "OPTIONS * HTTP/1.1\r\nHost: localhost": 400,
    "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80": 400,
    "GET /v1/health/ HTTP/1.1": 400,
    "GET /v1/health/ HTTP/1.1\r\nHost: localhost\r\nHost: localhost": 400,
    "GET /v1/health/ HTTP/1.1\r\nHost: user@localhost": 400,
    "GET /v1/health/ HTTP/1.0": 200,
    "GET /v1/blocks/ HTTP/1.0": 403,
    "GET /v1/blocks/ HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.7": 200,
}


@pytest.mark.parametrize(("head", "expected"), TARGETS.items(), ids=TARGETS)
def test_a_request_names_one_host(server: ServerProcess, head: str, expected: int) -> None:
    sent = f"{head}\r\nConnection: close\r\n\r\n".encode()
    assert status(exchange(server, sent)) == expected


async def test_a_request_to_upgrade_is_answered_and_ends_the_connection(
    server: ServerProcess,
) -> None:
    asked = HALF_A_REQUEST + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    answer = await asyncio.to_thread(exchange, server, asked)
    assert status(answer) == 200
    assert b"connection: close" in answer


def count_files(server: ServerProcess) -> int:
    try:
        return int(psutil.Process(server.pid).num_fds())
    except psutil.AccessDenied:
        # A server hides its memory and its open files from others of its user, such as tools.
        pytest.skip("only root can count the open files of a server")


async def test_a_server_without_free_files_answers_again_when_there_are_some(
    tmp_path: Path,
) -> None:
    server = ServerProcess.start(tmp_path, HOLDFAST_HEADER_SECONDS="600")
    try:
        with half_sent(server.address, 1) as [accepted]:
            # Connections are accepted in their order: this one is the later.
            assert is_healthy(server)
            soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (count_files(server), hard))
            # The system accepts them and the server cannot. It drops them with a file that its loop holds back for
            # that; if another thread takes that file first, they wait until there are free ones.
            with half_sent(server.address, 50):
                accepted.sendall(b"Connection: close\r\n\r\n")
                # The loop answers after it has tried to accept them.
                assert status(read_answer(accepted)) == 200
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
                assert is_healthy(server)
    finally:
        assert server.stop() == 0


@contextmanager
def server_with_few_files(home: Path, port: int, **variables: str) -> Iterator[ServerProcess]:
    """Starts; whoever needs the greeting waits for it."""

    def start(
        arguments: list[str], environment: dict[str, str], stderr: int
    ) -> "subprocess.Popen[str]":
        limit = (FEW_FILES, FEW_FILES)
        return subprocess.Popen(
            [HOLDFAST, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),  # noqa: PLW1509 - no threads use locks here
        )

    process = ServerProcess(start, home, (), {"HOLDFAST_PORT": str(port)} | variables)
    try:
        yield process
    finally:
        process.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def begin_connections(port: int, count: int, stack: ExitStack) -> None:
    """Those that the system does not take yet go on trying."""
    for _ in range(count):
        connection = stack.enter_context(socket.socket())
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.connect(("127.0.0.1", port))


async def test_half_sent_requests_during_the_start_do_not_end_a_server_with_few_files(
    tmp_path: Path,
) -> None:
    """The libraries of the provider are loaded after the listener is open, and need files."""
    port = free_port()
    with (
        server_with_few_files(tmp_path, port, OPENAI_API_KEY="test") as process,
        ExitStack() as stack,
    ):
        # The command has yet to load its libraries, on a machine that may be busy.
        for _ in range(3):
            with suppress(TimeoutError):
                await eventually(lambda: is_listening(port))
                break
        begin_connections(port, 400, stack)
        await asyncio.to_thread(process._wait_until_ready)
        begin_connections(port, 400, stack)
        assert is_healthy(process)
        stack.close()
        assert is_healthy(process)
    assert "Traceback" not in process.log, process.log


async def test_an_error_in_warming_up_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    class NoFreeFile:
        async def warm_up(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    threshold = gc.get_threshold()
    try:
        await warm_up(cast("ModelRouter", NoFreeFile()))
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
    assert [record.message for record in caplog.records] == ["warm_up.failed"]
