"""Which URLs from callers are allowed: checks of the text, and checks of the address."""

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.addresses import (
    AllowedAddresses,
    Destination,
    is_allowed,
    parse_allowed,
    parse_destination,
)
from holdfast.errors import AddressForbidden

NOTHING_MORE = AllowedAddresses()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://example.org", ("http", "example.org", 80, "/")),
        (
            "https://Example.ORG/hook?a=1&b=%20#part",
            ("https", "example.org", 443, "/hook?a=1&b=%20"),
        ),
        ("https://example.org.:8443/hook", ("https", "example.org", 8443, "/hook")),
        ("HTTPS://xn--bcher-kva.example/", ("https", "xn--bcher-kva.example", 443, "/")),
        ("http://8.8.8.8/hook", ("http", "8.8.8.8", 80, "/hook")),
        ("http://[2606:4700::1111]:81/", ("http", "2606:4700::1111", 81, "/")),
        # A public address in IPv6 notation is still public.
        ("http://[::ffff:8.8.8.8]/", ("http", "::ffff:808:808", 80, "/")),
        ("http://[64:ff9b::808:808]/", ("http", "64:ff9b::808:808", 80, "/")),
    ],
)
def test_a_public_address_is_taken_apart(url: str, parts: tuple[str, str, int, str]) -> None:
    assert parse_destination(url, NOTHING_MORE) == Destination(*parts)


@pytest.mark.parametrize(
    "url",
    [
        # not HTTP
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "unix:///var/run/docker.sock",
        "//example.org/",
        "example.org/hook",
        "http:example.org",
        "http://",
        "http:///hook",
        "",
        # user information in front of the host
        "http://user:password@example.org/",
        "http://example.org@127.0.0.1/",
        "http://example.org%40127.0.0.1/",
        "http://127.0.0.1\\@example.org/",
        "http://example.org\\@127.0.0.1/",
        # characters that parsers read differently
        "http://exa mple.org/",
        "http://example.org/\r\nX-Evil: 1",
        "http://example.org/a b",
        "http://example.org/\t",
        "http://example.org\x00.evil.org/",
        "http://127.0.0.1#@example.org/",
        "http://127。0。0。1/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://ⓛocalhost/",
        "http://bücher.example/",
        # loopback and private networks
        "http://localhost/",
        "http://LOCALHOST:8283/",
        "http://localhost./",
        "http://api.localhost/",
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.255.255.254/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://172.31.255.255/",
        "http://192.168.0.1/",
        "http://100.100.100.200/",
        "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[fd00:ec2::254]/",
        "http://[ff02::1]/",
        # the same addresses in other notations
        "http://2130706433/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://0x7f.0.0.1/",
        "http://0x7f000001/",
        "http://0x/",
        "http://127.0.0.01/",
        "http://1.2.3/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
        # not a host, not a port
        "http://example..org/",
        "http://.example.org/",
        "http://example.org../",
        "http://-example.org/",
        "http://[::1/",
        "http://[example.org]/",
        "http://[127.0.0.1]/",
        "http://[::1]evil.org/",
        "http://example.org:0/",
        "http://example.org:/",
        "http://example.org:65536/",
        "http://example.org:80:80/",
        "http://example.org:+80/",
        "http://" + "a" * 64 + ".org/",
        "http://" + "a." * 127 + "org/",
        "http://example.org/" + "a" * 2048,
    ],
)
def test_what_is_not_a_public_address_in_plain_writing_is_refused(url: str) -> None:
    with pytest.raises(AddressForbidden):
        parse_destination(url, NOTHING_MORE)


INSIDE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
]


def notations(address: IPv4Address) -> list[str]:
    """Notations of one address that have been used to get past filters."""
    parts, number = address.packed, int(address)
    high, low = number >> 16, number & 0xFFFF
    return [
        str(address),
        f"{address}.",
        str(number),
        f"{number:#x}",
        f"{number:#o}".replace("0o", "0"),
        ".".join(f"{part:#x}" for part in parts),
        ".".join(f"0{part:o}" for part in parts),
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"[::ffff:{address}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[::{address}]",
        f"[64:ff9b::{address}]",
        f"[2002:{high:x}:{low:x}::1]",
    ]


@given(st.sampled_from(INSIDE).flatmap(lambda text: st.ip_addresses(network=text)))
@settings(max_examples=50)
def test_an_address_inside_is_refused_in_whatever_clothes(address: IPv4Address) -> None:
    for host in notations(address):
        with pytest.raises(AddressForbidden):
            parse_destination(f"http://{host}/", NOTHING_MORE)


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        (["127.0.0.1"], "http://127.0.0.1:9000/hook"),
        (["127.0.0.1"], "http://[::ffff:127.0.0.1]:9000/hook"),
        (["10.0.0.0/8"], "http://10.1.2.3/"),
        (["fd00::/8"], "http://[fd00::1]/"),
        (["localhost"], "http://localhost:9000/"),
        (["Hooks.Localhost."], "http://hooks.localhost/"),
        (["0.0.0.0/0", "::/0"], "http://[::1]/"),
    ],
)
def test_the_operator_may_allow_more(allowed: list[str], url: str) -> None:
    with pytest.raises(AddressForbidden, match="HOLDFAST_ALLOWED_PRIVATE_HOSTS"):
        parse_destination(url, NOTHING_MORE)

    parse_destination(url, parse_allowed(allowed))


def test_what_is_allowed_for_one_is_not_allowed_for_another() -> None:
    allowed = parse_allowed(["hooks.internal", "10.1.0.0/16"])

    assert is_allowed("hooks.internal", ip_address("127.0.0.1"), allowed)
    assert is_allowed("other.internal", ip_address("10.1.255.255"), allowed)
    assert not is_allowed("other.internal", ip_address("127.0.0.1"), allowed)
    assert not is_allowed("evil.hooks.internal", ip_address("127.0.0.1"), allowed)
    assert not is_allowed("other.internal", ip_address("10.2.0.0"), allowed)


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/33", "a b", "http://x", "0x7f.1", "*"])
def test_an_exception_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_allowed([entry])
