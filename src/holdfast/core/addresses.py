"""Which URLs from callers may be requested: public addresses by HTTP(S), and what the operator allows.

No I/O: ``adapters/outgoing`` resolves host names and checks the address of each connection with ``is_allowed``.
A URL in an unusual notation is refused, because another parser might read it differently.
"""

import re
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.errors import AddressForbidden

MAX_URL_CHARACTERS: Final = 2048

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNSAFE_CHARACTER: Final = re.compile(r"[^!-~]|\\")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What old resolvers accept as a part of an IPv4 address: 127, 0177, 0x7f.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

# IANA's special-purpose registry, and Azure's service address, which lies in public address space.
_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_PUBLIC_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


class AllowedAddresses(Struct, frozen=True):
    """The hosts and networks that the operator allows besides public addresses."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[IPNetwork, ...] = ()


class Destination(Struct, frozen=True):
    """A parsed URL. HTTP clients get the parts, so that they cannot parse the URL differently."""

    scheme: str
    host: str
    port: int
    # Path and query.
    target: str


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. A name that is not known may lead anywhere."""
    name = host.removesuffix(".")
    # All names under localhost are reserved for loopback (RFC 6761).
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def parse_allowed(entries: Iterable[str]) -> AllowedAddresses:
    """Parse host names, addresses and networks (10.0.0.0/8). ValueError for anything else."""
    hosts: set[str] = set()
    networks: list[IPNetwork] = []
    for entry in entries:
        try:
            networks.append(ip_network(entry))
        except ValueError:
            if "/" in entry or _is_numeric(entry):
                raise
            hosts.add(_check_host_name(entry.lower().removesuffix(".")))
    return AllowedAddresses(frozenset(hosts), tuple(networks))


def parse_destination(url: str, allowed: AllowedAddresses) -> Destination:
    """Parse a caller's URL. Raises AddressForbidden if that can be decided without a DNS lookup."""
    if len(url) > MAX_URL_CHARACTERS:
        raise AddressForbidden(f"it is longer than {MAX_URL_CHARACTERS} characters")
    if _UNSAFE_CHARACTER.search(url):
        raise AddressForbidden("it has characters that must be encoded in a URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressForbidden("it is not a URL") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise AddressForbidden("only http:// and https:// are supported")
    if "@" in parts.netloc:
        raise AddressForbidden("it has a name or a password in front of the host")
    if port == 0 or parts.netloc.endswith(":"):
        raise AddressForbidden("its port is not valid")
    host = _parse_host(parts.netloc, parts.hostname or "")
    _refuse_known_private(host, allowed)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], target)


def is_allowed(host: str, address: IPAddress, allowed: AllowedAddresses) -> bool:
    """Whether a connection to this address of the host is allowed."""
    target = _unwrap_ipv4(address)
    return (
        host in allowed.hosts
        or any(target in network or address in network for network in allowed.networks)
        or _is_public(target)
    )


def is_public(address: IPAddress) -> bool:
    """Whether everybody can reach the address, and not only those in some network."""
    return _is_public(_unwrap_ipv4(address))


def is_named(host: str, allowed: AllowedAddresses) -> bool:
    """Whether the operator names the host, or a network that its address is in."""
    if host in allowed.hosts:
        return True
    address = IPv4Address("127.0.0.1") if host == "localhost" else _parse_ip(host)
    return address is not None and any(address in network for network in allowed.networks)


def check_secure(destination: Destination, allowed: AllowedAddresses) -> None:
    """Raise AddressForbidden unless the tokens of a login may be sent there: over TLS, or to a host that the operator names."""
    if destination.scheme != "https" and not is_named(destination.host, allowed):
        raise AddressForbidden(
            f"a login needs https, but for hosts that HOLDFAST_ALLOWED_PRIVATE_HOSTS names, and {destination.host} "
            "is none of them"
        )


def _parse_host(netloc: str, hostname: str) -> str:
    if netloc.startswith("["):
        try:
            address = IPv6Address(hostname)
        except ValueError:
            raise AddressForbidden("its host is not an address") from None
        if address.scope_id is not None:
            raise AddressForbidden("its host is an address of one network card alone")
        return str(address)
    host = hostname.removesuffix(".")
    try:
        return _check_host_name(host)
    except ValueError:
        raise AddressForbidden(
            "its host is neither a name nor an address as usually written"
        ) from None


def _check_host_name(host: str) -> str:
    """Accept a host name, or an IPv4 address of four decimal numbers. ValueError for anything else."""
    if _is_numeric(host):
        return str(IPv4Address(host))
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise ValueError(host)
    return host


def _is_numeric(host: str) -> bool:
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _refuse_known_private(host: str, allowed: AllowedAddresses) -> None:
    if host in allowed.hosts:
        return
    address = _parse_ip(host)
    if address is None:
        if host == "localhost" or host.endswith(".localhost"):
            address = IPv4Address("127.0.0.1")
        else:
            return
    if not is_allowed(host, address, allowed):
        raise AddressForbidden.private(host)


def _parse_ip(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _unwrap_ipv4(address: IPAddress) -> IPAddress:
    """The IPv4 address inside an IPv6 address (mapped, NAT64, 6to4); any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: IPAddress) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
