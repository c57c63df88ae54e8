"""Requests to URLs from callers: only to a checked address, once, and within limits."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.outgoing.lookup import MAX_LOOKUPS, Lookup
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.errors import AddressForbidden, Undeliverable
from holdfast.ports.outgoing import OutgoingRequest

LOOPBACK = parse_allowed(["127.0.0.1"])


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with run_receiver() as receiver:
        yield receiver


def make_request(
    url: str, *, seconds: float = WAIT_SECONDS, max_bytes: int = 1000
) -> OutgoingRequest:
    return OutgoingRequest(
        url=url,
        method="POST",
        headers={"Content-Type": "text/plain"},
        body=b"hello",
        timeout_seconds=seconds,
        max_response_bytes=max_bytes,
    )


def make_outgoing(allowed: AllowedAddresses, *answers: Sequence[str]) -> GuardedOutgoing:
    """Each lookup of a name returns the next of these answers, and the last one from then on."""
    left = list(answers)

    def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return GuardedOutgoing(allowed, Lookup(allowed, resolve))


async def test_a_request_arrives_under_the_name_it_was_sent_to(receiver: Receiver) -> None:
    receiver.answers = [CannedResponse(201, {"X-Seen": "yes"}, b"thanks")]
    url = f"http://hooks.example:{receiver.port}/here?a=1"

    reply = await make_outgoing(LOOPBACK, ["127.0.0.1"]).send(make_request(url))

    heard = await receiver.next_request()
    assert (heard.method, heard.target, heard.body) == ("POST", "/here?a=1", b"hello")
    assert heard.headers["host"] == f"hooks.example:{receiver.port}"
    assert heard.headers["content-type"] == "text/plain"
    assert (reply.status, reply.headers["x-seen"], reply.body) == (201, "yes", b"thanks")


async def test_a_name_that_stands_for_a_private_address_is_not_asked(receiver: Receiver) -> None:
    url = f"http://rebound.example:{receiver.port}/"

    with pytest.raises(AddressForbidden, match=r"rebound\.example is not a public address"):
        await make_outgoing(AllowedAddresses(), ["127.0.0.1", "::1", "10.0.0.1"]).send(
            make_request(url)
        )

    assert receiver.all_requests == []


async def test_of_several_addresses_only_those_that_may_be_reached_are_tried(
    receiver: Receiver,
) -> None:
    """127.0.0.2 would answer as well if it were asked."""
    network = make_outgoing(LOOPBACK, ["127.0.0.2", "169.254.169.254", "127.0.0.1"])

    reply = await network.send(make_request(f"http://many.example:{receiver.port}/"))

    assert reply.status == 200
    assert await Lookup(LOOPBACK, lambda *_: ["127.0.0.2", "127.0.0.1"]).find_addresses(
        "many", 1
    ) == ["127.0.0.1"]


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    receiver: Receiver,
) -> None:
    """DNS rebinding: a name server that returns a public address first and a private one later gains nothing."""
    looked_up = 0

    def rebinding(host: str, port: int) -> Sequence[str]:
        nonlocal looked_up
        looked_up += 1
        return ["127.0.0.1"] if looked_up == 1 else ["10.0.0.1"]

    network = GuardedOutgoing(LOOPBACK, Lookup(LOOPBACK, rebinding))
    url = f"http://rebinding.example:{receiver.port}/"

    assert (await network.send(make_request(url))).status == 200
    assert looked_up == 1
    with pytest.raises(AddressForbidden):
        await network.send(make_request(url))


async def test_a_redirect_is_an_answer_and_not_an_order(receiver: Receiver) -> None:
    receiver.answers = [CannedResponse(302, {"Location": f"{receiver.url}/inside"})]

    reply = await make_outgoing(LOOPBACK, ["127.0.0.1"]).send(
        make_request(f"{receiver.url}/outside")
    )

    assert reply.status == 302
    assert [heard.target for heard in receiver.all_requests] == ["/outside"]


async def test_an_answer_that_does_not_come_ends_in_time(receiver: Receiver) -> None:
    receiver.answers = [None]

    with pytest.raises(Undeliverable, match=r"no answer within 0\.05 s"):
        await make_outgoing(LOOPBACK, ["127.0.0.1"]).send(make_request(receiver.url, seconds=0.05))


async def test_an_answer_that_is_too_large_is_not_taken(receiver: Receiver) -> None:
    receiver.answers = [CannedResponse(body=b"x" * 1001)]

    with pytest.raises(Undeliverable, match="larger than 1000 bytes"):
        await make_outgoing(LOOPBACK, ["127.0.0.1"]).send(make_request(receiver.url))


async def test_a_server_that_is_not_there_is_reported() -> None:
    async with run_receiver() as receiver:
        url = receiver.url

    with pytest.raises(Undeliverable, match=r"127\.0\.0\.1 gave no answer"):
        await make_outgoing(LOOPBACK, ["127.0.0.1"]).send(make_request(url))


async def test_an_unknown_name_is_reported() -> None:
    def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    network = GuardedOutgoing(AllowedAddresses(), Lookup(AllowedAddresses(), unknown))

    with pytest.raises(Undeliverable, match=r"nobody\.example was not found"):
        await network.send(make_request("http://nobody.example/"))


async def test_what_is_not_even_a_name_is_reported() -> None:
    """Python's resolver reports this differently from an unknown name."""
    lookup = Lookup(AllowedAddresses())

    for _ in range(2):
        with pytest.raises(Undeliverable, match="was not found"):
            await lookup.find_addresses(f"{'a' * 64}.example", 80)


async def test_a_name_server_that_hangs_delays_no_other_request(receiver: Receiver) -> None:
    """It blocks neither its own request nor requests for other names, however often it is repeated."""
    answering = Event()

    def resolve(host: str, port: int) -> Sequence[str]:
        if host == "slow.example":
            answering.wait(WAIT_SECONDS)
        return ["127.0.0.1"]

    network = GuardedOutgoing(LOOPBACK, Lookup(LOOPBACK, resolve))
    waiting = [
        asyncio.create_task(network.send(make_request("http://slow.example/", seconds=0.05)))
        for _ in range(MAX_LOOKUPS)
    ]
    for task in waiting:
        with pytest.raises(Undeliverable, match="no answer within"):
            await task

    assert (
        await network.send(make_request(f"http://quick.example:{receiver.port}/"))
    ).status == 200
    answering.set()


async def test_a_name_is_looked_up_when_its_turn_comes(receiver: Receiver) -> None:
    """If all lookups are in use, a request waits for one within its timeout."""
    answering = Event()
    asked = Barrier(MAX_LOOKUPS + 1)

    def resolve(host: str, port: int) -> Sequence[str]:
        if host != "quick.example":
            asked.wait(WAIT_SECONDS)
            answering.wait(WAIT_SECONDS)
        return ["127.0.0.1"]

    lookup = Lookup(LOOPBACK, resolve)
    network = GuardedOutgoing(LOOPBACK, lookup)
    slow = [
        asyncio.create_task(lookup.find_addresses(f"{number}.example", 80))
        for number in range(MAX_LOOKUPS)
    ]
    await asyncio.to_thread(asked.wait, WAIT_SECONDS)
    url = f"http://quick.example:{receiver.port}/"
    patient = asyncio.create_task(network.send(make_request(url)))
    with pytest.raises(Undeliverable, match="no answer within"):
        await network.send(make_request(url, seconds=0.05))
    answering.set()

    assert (await patient).status == 200
    assert await asyncio.gather(*slow) == [["127.0.0.1"]] * MAX_LOOKUPS


async def test_what_is_evident_is_refused_before_anybody_is_asked() -> None:
    network = make_outgoing(LOOPBACK, ["8.8.8.8"])

    network.check("https://hooks.example/")
    network.check("http://127.0.0.1:9000/")
    for url in ("http://10.0.0.1/", "http://user@hooks.example/", "file:///etc/passwd"):
        with pytest.raises(AddressForbidden):
            network.check(url)
        with pytest.raises(AddressForbidden):
            await network.send(make_request(url))


def certificate(folder: Path, name: str) -> Path:
    """A key and a self-signed certificate for a server of this name, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + signed.public_bytes(Encoding.PEM))
    return path


async def test_the_name_is_what_a_certificate_must_be_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to an address, but the certificate must be valid for the name."""
    pem = certificate(tmp_path, "hooks.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    asked_for: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    network = make_outgoing(LOOPBACK, ["127.0.0.1"])

    async with run_receiver(tls=context) as receiver:
        reply = await network.send(make_request(f"https://hooks.example:{receiver.port}/"))
        heard = await receiver.next_request()
        with pytest.raises(Undeliverable, match=r"other\.example gave no answer"):
            await network.send(make_request(f"https://other.example:{receiver.port}/"))

    assert reply.status == 200
    assert heard.headers["host"] == f"hooks.example:{receiver.port}"
    assert asked_for == ["hooks.example", "other.example"]
