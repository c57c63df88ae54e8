"""Finds the other end of a TCP connection between two programs on this machine: its inode and its user (Linux).

Asks the kernel for that one socket (sock_diag). Where that is not possible, reads the table of all sockets.
"""

import errno
import ipaddress
import os
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_TCP_LISTEN: Final = 10
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8

# linux/netlink.h, linux/inet_diag.h: the header, the request, and what comes before and after the socket's id in
# the answer. The id is the ports and addresses (network byte order), the interface and the cookie.
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI")
_PORTS: Final = struct.Struct("!HH")
_ANSWER: Final = struct.Struct("=BBBB2H16s16sI8sIIIII")
_ANSWER_BYTES: Final = 8192
_ANSWER_SECONDS: Final = 1.0

_PROC_TABLES: Final = {4: ("tcp", "tcp6"), 6: ("tcp6",)}

Address = tuple[str, int]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class PeerSocket(NamedTuple):
    inode: int
    """0: no process has it open any more."""
    uid: int


def find_peer_socket(peer: Address, local: Address) -> PeerSocket | None:
    """The socket with which ``peer`` is connected to our end, ``local``; None if it is gone, or not on this machine."""
    near, far = (parse_ip(peer[0]), peer[1]), (parse_ip(local[0]), local[1])
    try:
        return _ask_kernel(near, far)
    except OSError:
        return _search_tables(near, far)


def parse_ip(host: str) -> IPAddress:
    """IPv4 inside IPv6 becomes IPv4, which is how the kernel stores such sockets. A network card's name is dropped."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def is_on_this_machine(host: str) -> bool:
    """Whether a process on this machine can have this address. Only own addresses can be bound."""
    address = parse_ip(host)
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        # A link-local address cannot be bound without its network card, so the error says nothing about it.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def build_request(near: tuple[IPAddress, int], far: tuple[IPAddress, int]) -> bytes:
    family = socket.AF_INET if near[0].version == 4 else socket.AF_INET6
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    body += _PORTS.pack(near[1], far[1])
    body += near[0].packed.ljust(16, b"\0") + far[0].packed.ljust(16, b"\0")
    body += bytes(4) + _NO_COOKIE
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body


def parse_answer(data: bytes, near_port: int, far_port: int) -> PeerSocket | None:
    """OSError if the kernel does not answer such requests."""
    _, kind, _, _, _ = _HEADER.unpack_from(data)
    if kind == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", data, _HEADER.size)
        if -code == errno.ENOENT:
            return None
        raise OSError(-code, os.strerror(-code))
    fields = _ANSWER.unpack_from(data, _HEADER.size)
    state, ports, (uid, inode) = fields[1], _PORTS.unpack_from(data, _HEADER.size + 4), fields[-2:]
    # For a socket that is gone the kernel answers with a listener on the same port.
    if state == _TCP_LISTEN or ports != (near_port, far_port):
        return None
    return PeerSocket(inode, uid)


def parse_table_line(line: str) -> tuple[tuple[IPAddress, int], tuple[IPAddress, int], PeerSocket]:
    """One line of /proc/net/tcp or tcp6: both ends and the socket."""
    words = line.split()
    return (
        _parse_table_address(words[1]),
        _parse_table_address(words[2]),
        PeerSocket(int(words[9]), int(words[7])),
    )


def _parse_table_address(text: str) -> tuple[IPAddress, int]:
    """Words of four bytes in the byte order of the machine, in hexadecimal; then the port."""
    address, _, port = text.partition(":")
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return parse_ip(socket.inet_ntop(_FAMILIES[len(packed)], packed)), int(port, 16)


_FAMILIES: Final = {4: socket.AF_INET, 16: socket.AF_INET6}


def _ask_kernel(near: tuple[IPAddress, int], far: tuple[IPAddress, int]) -> PeerSocket | None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(_ANSWER_SECONDS)
        netlink.sendto(build_request(near, far), (0, 0))
        return parse_answer(netlink.recv(_ANSWER_BYTES), near[1], far[1])


def _search_tables(near: tuple[IPAddress, int], far: tuple[IPAddress, int]) -> PeerSocket | None:
    for table in _PROC_TABLES[near[0].version]:
        try:
            lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            found_near, found_far, found = parse_table_line(line)
            if (found_near, found_far) == (near, far):
                return found
    return None
