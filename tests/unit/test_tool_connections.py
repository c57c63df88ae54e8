"""Whose a connection is: what the kernel says about sockets and processes, and what follows from it."""

import errno
import os
import socket
import struct
import sys
import time
from ipaddress import ip_address
from subprocess import PIPE, Popen
from unittest.mock import patch

import pytest

from holdfast.adapters.processes import parse_stat, read_process
from holdfast.adapters.sandbox.peer_sockets import (
    PeerSocket,
    build_request,
    find_peer_socket,
    is_on_this_machine,
    parse_answer,
    parse_ip,
    parse_table_line,
)
from holdfast.adapters.sandbox.process_table import (
    find_sockets,
    is_confined,
)
from holdfast.adapters.sandbox.tool_connections import ProcToolConnections
from holdfast.adapters.sandbox.tool_processes import (
    COLLECTION_SECONDS,
    REMEMBERED_SECONDS,
    CallProcesses,
    ToolProcesses,
    may_be_tool_process,
)
from holdfast.ports.tool_connections import Connection

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="It is about Linux.")

ESTABLISHED, LISTEN = 1, 10


def answer(state: int, ports: tuple[int, int]) -> bytes:
    body = struct.pack("=BBBB", socket.AF_INET, state, 0, 0) + struct.pack("!HH", *ports)
    body += bytes(32) + bytes(4) + bytes(8)
    body += struct.pack("=IIIII", 0, 0, 0, 1000, 777)
    return struct.pack("=IHHII", 16 + len(body), 20, 0, 1, 0) + body


def test_the_answer_of_the_kernel_names_user_and_inode() -> None:
    assert parse_answer(answer(ESTABLISHED, (5000, 8283)), 5000, 8283) == PeerSocket(777, 1000)


@pytest.mark.parametrize(
    ("state", "ports"), [(LISTEN, (5000, 8283)), (ESTABLISHED, (5000, 1)), (LISTEN, (5000, 0))]
)
def test_another_socket_on_the_same_port_is_not_the_peer(
    state: int, ports: tuple[int, int]
) -> None:
    assert parse_answer(answer(state, ports), 5000, 8283) is None


def error(number: int) -> bytes:
    return struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -number)


def test_a_socket_that_is_gone_is_none_and_a_kernel_that_cannot_say_is_an_error() -> None:
    assert parse_answer(error(errno.ENOENT), 1, 2) is None
    with pytest.raises(OSError, match="Operation not"):
        parse_answer(error(errno.EOPNOTSUPP), 1, 2)


def test_a_request_names_both_ends() -> None:
    request = build_request((ip_address("127.0.0.1"), 5000), (ip_address("127.0.0.2"), 8283))
    assert len(request) == struct.unpack_from("=I", request)[0] == 72
    assert struct.unpack_from("!HH4s12x4s", request, 24) == (
        5000,
        8283,
        bytes([127, 0, 0, 1]),
        bytes([127, 0, 0, 2]),
    )


@pytest.mark.skipif(sys.byteorder != "little", reason="The lines are those of such a machine.")
@pytest.mark.parametrize(
    ("line", "near", "far"),
    [
        (
            "0: 0100007F:1388 0200007F:205B 01 0:0 0:0 0 1000 0 777",
            ("127.0.0.1", 5000),
            ("127.0.0.2", 8283),
        ),
        (
            "1: 0000000000000000FFFF00000100007F:1388 00000000000000000000000001000000:205B 01 0:0 0:0 0 1000 0 777",
            ("127.0.0.1", 5000),
            ("::1", 8283),
        ),
    ],
)
def test_a_line_of_the_table_names_both_ends_user_and_inode(
    line: str, near: tuple[str, int], far: tuple[str, int]
) -> None:
    expected_near, expected_far = (ip_address(near[0]), near[1]), (ip_address(far[0]), far[1])
    assert parse_table_line(line) == (expected_near, expected_far, PeerSocket(777, 1000))


def test_an_address_is_compared_as_ipv4_if_it_contains_one() -> None:
    assert parse_ip("::ffff:127.0.0.1") == ip_address("127.0.0.1")
    assert parse_ip("fe80::1%eth0") == ip_address("fe80::1")


def test_only_own_addresses_are_on_this_machine() -> None:
    assert is_on_this_machine("127.0.0.1")
    assert is_on_this_machine("::ffff:127.9.9.9")
    assert not is_on_this_machine("192.0.2.1")


@only_linux
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_other_end_of_a_connection_is_found(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
    ):
        accepted, peer = listener.accept()
        inode = os.fstat(client.fileno()).st_ino
        assert find_peer_socket(peer[:2], listener.getsockname()[:2]) == (inode, os.geteuid())
        assert find_sockets(frozenset({inode}), [os.getpid()]) == {inode: os.getpid()}
        client.close()
        gone = find_peer_socket(peer[:2], listener.getsockname()[:2])
        assert gone is None or gone.inode == 0
        accepted.close()


def test_the_name_of_a_process_may_look_like_the_rest_of_the_line() -> None:
    after = b"S 7 5 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0"
    assert parse_stat(b"5 (a) S 1 (b)) " + after) == (7, 6, 4242)


@only_linux
def test_a_process_belongs_to_a_call_by_its_ancestors_or_its_session() -> None:
    own = read_process(os.getpid())
    assert own is not None
    by_parent = CallProcesses(own.parent, None)
    by_session = CallProcesses(2**30, own.session)
    other = CallProcesses(2**30, 2**30)
    assert may_be_tool_process(os.getpid(), [other, by_parent])
    assert may_be_tool_process(os.getpid(), [other, by_session])
    assert not may_be_tool_process(os.getpid(), [other])
    assert may_be_tool_process(2**30, [])  # it cannot be read


@only_linux
def test_a_process_with_the_limits_of_a_tool_may_be_one_of_another_server() -> None:
    code = (
        "import ctypes, resource, sys\n"
        "if 'limits' in sys.argv:\n"
        "    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):\n"
        "        resource.setrlimit(kind, (2**30, 2**30))\n"
        "if 'privileges' in sys.argv:\n"
        "    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "print(flush=True), sys.stdin.read()"
    )
    found = []
    for given in (["limits", "privileges"], ["limits"], ["privileges"]):
        command = [sys.executable, "-I", "-c", code, *given]
        with Popen(command, stdin=PIPE, stdout=PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            found.append((is_confined(program.pid), may_be_tool_process(program.pid, [])))
            program.kill()
    assert found == [(True, True), (False, False), (False, False)]
    assert is_confined(2**30) is None


def test_tools_count_as_near_for_a_while_after_their_end() -> None:
    processes = ToolProcesses()
    now = time.monotonic()
    assert not processes.may_have_lived(now)
    with processes.track(CallProcesses(1, 2)):
        assert (processes.may_have_sockets, processes.may_have_lived(now)) == (True, True)
    ended = time.monotonic()
    assert processes.list_recent() == [CallProcesses(1, 2)]
    assert processes.may_have_lived(ended + REMEMBERED_SECONDS - 1)
    assert not processes.may_have_lived(ended + REMEMBERED_SECONDS + 1)
    found = [processes.may_have_sockets]
    with patch.object(time, "monotonic", lambda: ended + COLLECTION_SECONDS + 1):
        found.append(processes.may_have_sockets)
        processes.report_lost()
        found.append(processes.may_have_sockets)
    assert found == [True, False, True]


@only_linux
@pytest.mark.parametrize("user", ["own", "of tools"])
async def test_a_socket_that_no_process_has_open_may_be_that_of_a_tool_which_has_ended(
    user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool can send its connection to itself: nobody has it open then, and the kernel collects it some time after the
    tool's end. A connection that an ordinary program has open is attributed to that."""
    processes = ToolProcesses()
    with processes.track(CallProcesses(2**30, 2**30)):
        pass
    uid = os.geteuid()
    if user == "of tools":
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    connections = ProcToolConnections(processes, frozenset({uid}), is_alone=True)
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        sent, kept = (socket.create_connection(listener.getsockname()) for _ in range(2))
        ends = [
            Connection(each.getsockname(), listener.getsockname(), time.monotonic())
            for each in (sent, kept)
        ]
        socket.send_fds(ours, [b"x"], [sent.fileno()])
        sent.close()
        with kept:
            assert [await connections.may_be_tool(end) for end in ends] == [True, False]
    connections.close()
