"""Hosts in network namespaces of the test's own, joined by virtual Ethernet, with links that can swallow packets.

The namespaces have no names, so nothing is left over: Linux removes one when no process, thread or descriptor uses it any
more, however the test ends. Their addresses exist only there, and nothing outside can be reached from them.
"""

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

# The variable that moves a forked server to a namespace: the path of a descriptor for it.
NAMESPACE: Final = "TEST_NETWORK_NAMESPACE"
# What the site offers on its networks. A host has a link of its own to each of them.
CLIENTS: Final = "10.0.1.1"
DATABASE: Final = "10.0.2.1"
REDIS: Final = "10.0.3.1"
_NETWORKS: Final = {"clients": CLIENTS, "database": DATABASE, "redis": REDIS}

_CLONE_NEWNET: Final = 0x4000_0000
_HERE: Final = "/proc/thread-self/ns/net"
# Of Ethernet. Nobody has the last one.
_SITE_ADDRESS: Final = "02:00:00:00:00:01"
_HOST_ADDRESS: Final = "02:00:00:00:00:02"
_NOBODYS_ADDRESS: Final = "02:00:00:00:00:ff"
_SET_NEIGHBOUR: Final = "neighbour replace nud permanent"

# Python has these functions from 3.12 on.
_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """Exists at least until it is closed."""

    def __init__(self) -> None:
        """PermissionError if this process may not make one."""
        with ThreadPoolExecutor(1) as thread:
            # Only that thread moves to the new namespace.
            self._descriptor = thread.submit(_open_new).result()
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self.run_ip("link set lo up")

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Move this thread there for a while. Sockets, threads and processes that it makes there stay there."""
        before = os.open(_HERE, os.O_RDONLY)
        try:
            _move_to(self._descriptor)
            yield
        finally:
            _move_to(before)
            os.close(before)

    def run_ip(self, *commands: str) -> None:
        with self.enter():
            subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)

    def close(self) -> None:
        os.close(self._descriptor)


class Link:
    """The Ethernet between a host and the site. Its ends know each other's Ethernet address and never ask for it: a host that
    gets no answer to such a question tells its programs that the network is broken."""

    def __init__(
        self, site: Namespace, host: Namespace, name: str, service: str, address: str
    ) -> None:
        self._site, self._host = site, host
        self._name, self._service, self.address = name, service, address
        site.run_ip(
            f"link add {name} address {_SITE_ADDRESS} type veth "
            f"peer name {name} address {_HOST_ADDRESS} netns {host.path}",
            f"link set {name} up",
            f"route add {address} dev {name} src {service}",
        )
        host.run_ip(
            f"address add {address}/32 dev {name}",
            f"link set {name} up",
            f"route add {service} dev {name} src {address}",
        )
        self.restore()

    def swallow(self) -> None:
        """Let no packet arrive, and tell nobody: each is sent to an Ethernet address that nobody has."""
        self._send_to_site(_NOBODYS_ADDRESS)
        self.swallow_answers()

    def swallow_answers(self) -> None:
        """Let packets of the host arrive, and none that is sent to it."""
        self._send_to_host(_NOBODYS_ADDRESS)

    def restore(self) -> None:
        self._send_to_site(_SITE_ADDRESS)
        self._send_to_host(_HOST_ADDRESS)

    def _send_to_site(self, receiver: str) -> None:
        self._host.run_ip(f"{_SET_NEIGHBOUR} {self._service} dev {self._name} lladdr {receiver}")

    def _send_to_host(self, receiver: str) -> None:
        self._site.run_ip(f"{_SET_NEIGHBOUR} {self.address} dev {self._name} lladdr {receiver}")


class Host:
    """A machine for one server, with a link to each network of the site."""

    def __init__(self, site: Namespace, number: int) -> None:
        self.namespace = Namespace()
        self.clients, self.database, self.redis = (
            Link(site, self.namespace, f"{name}-{number}", service, _address(service, number))
            for name, service in _NETWORKS.items()
        )
        # The settings of a server there.
        self.variables = {
            NAMESPACE: self.namespace.path,
            "HOLDFAST_HOST": _address(CLIENTS, number),
            "HOLDFAST_INSECURE": "true",
        }


class Network:
    """The site, where the test, its provider and its databases are, and hosts for servers."""

    def __init__(self, stack: ExitStack) -> None:
        self.site = Namespace()
        self._stack = stack
        self._stack.callback(self.site.close)
        self._numbers = itertools.count(2)
        self.site.run_ip(*(f"address add {each}/32 dev lo" for each in _NETWORKS.values()))

    def add_host(self) -> Host:
        host = Host(self.site, next(self._numbers))
        self._stack.callback(host.namespace.close)
        return host


def find_problem() -> str | None:
    """Why this process cannot make hosts; None if it can."""
    if shutil.which("ip") is None:
        return "There is no command ip (iproute2)."
    try:
        Namespace().close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"This process may not make network namespaces ({error})."
    return None


def move_to_namespace(path: str) -> None:
    """Move this thread, and what it starts from now on."""
    descriptor = os.open(path, os.O_RDONLY)
    _move_to(descriptor)
    os.close(descriptor)


def _address(service: str, number: int) -> str:
    return f"{service.rpartition('.')[0]}.{number}"


def _open_new() -> int:
    _check(_libc.unshare(_CLONE_NEWNET))
    return os.open(_HERE, os.O_RDONLY)


def _move_to(descriptor: int) -> None:
    _check(_libc.setns(descriptor, _CLONE_NEWNET))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
