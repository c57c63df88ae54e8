"""Server-side request forgery: every form of a URL that is known to lead filters to this machine or its network.

The rules themselves are tested in tests/unit/test_addresses.py, the connections in tests/contract/test_outgoing.py.
Here every form is sent, while a server on loopback listens and a name server answers whatever helps the attacker.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.doubles.http_receiver import (
    CannedResponse,
    Receiver,
    run_receiver,
    run_receiver_in_thread,
)
from tests.support.rig import Rig
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.user_providers import build_account
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.providers import Keys, Provider
from holdfast.errors import AddressForbidden, InvalidArgument
from holdfast.ports.outgoing import OutgoingRequest
from holdfast.usecases import images

LOOPBACK_FORMS = {
    "dotted": "http://127.0.0.1:{port}/",
    "dotted with a dot at the end": "http://127.0.0.1.:{port}/",
    "another loopback address": "http://127.8.7.6:{port}/",
    "one number": "http://2130706433:{port}/",
    "one number with leading zeros": "http://0000002130706433:{port}/",
    "one number that overflows": "http://6425673729:{port}/",
    "one hexadecimal number": "http://0x7f000001:{port}/",
    "one hexadecimal number in capitals": "http://0X7F000001:{port}/",
    "one hexadecimal number that overflows": "http://0x17f000001:{port}/",
    "one octal number": "http://017700000001:{port}/",
    "two parts": "http://127.1:{port}/",
    "three parts": "http://127.0.1:{port}/",
    "two parts, the last large": "http://127.1.1:{port}/",
    "octal parts": "http://0177.0.0.01:{port}/",
    "long octal parts": "http://00000177.0.0.1:{port}/",
    "hexadecimal parts": "http://0x7f.0x0.0x0.0x1:{port}/",
    "a hexadecimal part and one number": "http://0x7f.1:{port}/",
    "mixed bases": "http://0x7f.0.00.1:{port}/",
    "a part that overflows": "http://383.0.0.1:{port}/",
    "five parts": "http://127.0.0.1.0:{port}/",
    "an empty part": "http://127..0.1:{port}/",
    "zero": "http://0:{port}/",
    "zeros": "http://0.0.0.0:{port}/",
    "zeros in hexadecimal": "http://0x0:{port}/",
    "the name": "http://localhost:{port}/",
    "the name in capitals": "http://LocalHost:{port}/",
    "the name with a dot": "http://localhost.:{port}/",
    "a name under localhost": "http://anything.localhost:{port}/",
    "percent-encoded digits": "http://%31%32%37.0.0.1:{port}/",
    "percent-encoded dots": "http://127%2e0%2e0%2e1:{port}/",
    "a percent-encoded name": "http://%6cocalhost:{port}/",
    "full-width digits": "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "circled digits": "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460:{port}/",
    "Arabic digits": "http://\u0661\u0662\u0667.0.0.1:{port}/",
    "ideographic full stops": "http://127\u30020\u30020\u30021:{port}/",
    "half-width full stops": "http://127\uff610\uff610\uff611:{port}/",
    "circled letters": "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3:{port}/",
    "a soft hyphen": "http://local\u00adhost:{port}/",
    "a zero-width space": "http://local\u200bhost:{port}/",
    "IPv6": "http://[::1]:{port}/",
    "IPv6 in full": "http://[0000:0000:0000:0000:0000:0000:0000:0001]:{port}/",
    "the unspecified address of IPv6": "http://[::]:{port}/",
    "IPv4 mapped": "http://[::ffff:127.0.0.1]:{port}/",
    "IPv4 mapped in hexadecimal": "http://[::ffff:7f00:1]:{port}/",
    "IPv4 mapped in full": "http://[0:0:0:0:0:ffff:7f00:0001]:{port}/",
    "IPv4 mapped in capitals": "http://[::FFFF:127.0.0.1]:{port}/",
    "IPv4 compatible": "http://[::127.0.0.1]:{port}/",
    "IPv4 translated": "http://[::ffff:0:127.0.0.1]:{port}/",
    "NAT64": "http://[64:ff9b::127.0.0.1]:{port}/",
    "NAT64 of a local network": "http://[64:ff9b:1::127.0.0.1]:{port}/",
    "6to4": "http://[2002:7f00:1::]:{port}/",
    "Teredo": "http://[2001:0:7f00:1::]:{port}/",
    "Teredo to an inverted address": "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:{port}/",
    "a zone": "http://[::1%25lo]:{port}/",
    "a zone that is not encoded": "http://[::1%lo]:{port}/",
    "a zone after a public address": "http://[2606:4700::1111%25lo]:{port}/",
    "IPv4 in brackets": "http://[127.0.0.1]:{port}/",
    "a future address": "http://[v1.127.0.0.1]:{port}/",
    "brackets with a name behind": "http://[::1].example.org:{port}/",
    "a bracket that is not closed": "http://[::1:{port}/",
}
INSIDE_FORMS = {
    "private class A": "http://10.0.0.1/",
    "private class B": "http://172.16.0.1/",
    "private class C": "http://192.168.0.1/",
    "carrier-grade NAT": "http://100.64.0.1/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata as one number": "http://2852039166/",
    "metadata in hexadecimal": "http://0xa9fea9fe/",
    "metadata in octal": "http://0251.0376.0251.0376/",
    "metadata mapped": "http://[::ffff:a9fe:a9fe]/",
    "metadata by 6to4": "http://[2002:a9fe:a9fe::]/",
    "metadata by NAT64": "http://[64:ff9b::a9fe:a9fe]/",
    "metadata of Alibaba": "http://100.100.100.200/",
    "metadata of Oracle": "http://192.0.0.192/",
    "metadata by IPv6": "http://[fd00:ec2::254]/",
    "the host agent of Azure": "http://168.63.129.16/",
    "unique local": "http://[fd12:3456:789a::1]/",
    "link local": "http://[fe80::1]/",
    "site local": "http://[fec0::1]/",
    "multicast": "http://224.0.0.1/",
    "multicast by IPv6": "http://[ff02::1]/",
    "broadcast": "http://255.255.255.255/",
    "benchmark": "http://198.18.0.1/",
    "documentation": "http://[2001:db8::1]/",
    "discard": "http://[100::1]/",
}
PARSER_FORMS = {
    "user information": "http://example.org@127.0.0.1:{port}/",
    "a password": "http://user:password@127.0.0.1:{port}/",
    "empty user information": "http://@127.0.0.1:{port}/",
    "user information that ends in a fragment": "http://example.org#@127.0.0.1:{port}/@",
    "two at signs": "http://a@127.0.0.1:{port}@example.org/",
    "an encoded at sign": "http://example.org%40127.0.0.1:{port}/",
    "a backslash": "http://127.0.0.1:{port}\\@example.org/",
    "a backslash before the host": "http:\\\\127.0.0.1:{port}/",
    "a space": "http://example.org 127.0.0.1:{port}/",
    "a tab in the host": "http://127.0\t.0.1:{port}/",
    "a line break in the host": "http://127.0.0.1\n:{port}/",
    "a header in the path": "http://example.org/\r\nHost: 127.0.0.1",
    "a NUL": "http://127.0.0.1\x00.example.org:{port}/",
    "an encoded NUL": "http://127.0.0.1%00.example.org:{port}/",
    "a semicolon": "http://example.org;127.0.0.1:{port}/",
    "a comma": "http://example.org,127.0.0.1:{port}/",
    "two ports": "http://127.0.0.1:{port}:80/",
    "a port that overflows": "http://example.org:65616/",
    "one slash": "http:/127.0.0.1:{port}/",
    "three slashes": "http:///127.0.0.1:{port}/",
    "no scheme": "//127.0.0.1:{port}/",
    "no host": "127.0.0.1:{port}/",
    "a space in front": " http://127.0.0.1:{port}/",
    "a file": "file:///etc/passwd",
    "a file by its host": "file://127.0.0.1/etc/passwd",
    "gopher": "gopher://127.0.0.1:{port}/_GET%20/",
    "dict": "dict://127.0.0.1:{port}/info",
    "ftp": "ftp://127.0.0.1:{port}/",
    "ldap": "ldap://127.0.0.1:{port}/",
    "a nested scheme": "url:http://127.0.0.1:{port}/",
    "a view of another scheme": "jar:http://127.0.0.1:{port}!/",
    "inline data": "data:text/plain,hello",
    "a socket": "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
}
URL_FORMS = LOOPBACK_FORMS | INSIDE_FORMS | PARSER_FORMS

# What a name server may answer to get a request to this machine or its network.
DNS_ANSWERS = {
    "loopback": ["127.0.0.1"],
    "loopback by IPv6": ["::1"],
    "unspecified": ["0.0.0.0"],
    "unspecified by IPv6": ["::"],
    "mapped": ["::ffff:127.0.0.1"],
    "compatible": ["::127.0.0.1"],
    "NAT64": ["64:ff9b::7f00:1"],
    "6to4": ["2002:7f00:1::"],
    "a zone": ["fe80::1%1"],
    "a private network": ["10.0.0.1", "192.168.0.1", "172.31.0.1"],
    "metadata": ["169.254.169.254"],
    "unique local": ["fd00::1"],
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with run_receiver_in_thread() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def assert_nothing_arrives(receiver: Receiver) -> Iterator[None]:
    receiver.all_requests.clear()
    yield
    assert receiver.all_requests == []


def make_request(url: str) -> OutgoingRequest:
    return OutgoingRequest(url=url, timeout_seconds=WAIT_SECONDS, max_response_bytes=1000)


def make_outgoing(
    answers: Sequence[str], allowed: AllowedAddresses | None = None
) -> GuardedOutgoing:
    rules = allowed or AllowedAddresses()
    return GuardedOutgoing(rules, Lookup(rules, lambda _host, _port: answers))


@pytest.mark.parametrize("form", URL_FORMS)
async def test_no_form_of_a_url_reaches_this_machine(receiver: Receiver, form: str) -> None:
    """Nor one that only some parsers understand: whatever is looked up after all is loopback."""
    url = URL_FORMS[form].replace("{port}", str(receiver.port))
    outgoing = make_outgoing(["127.0.0.1"])

    with pytest.raises(AddressForbidden):
        await outgoing.send(make_request(url))


@pytest.mark.parametrize("answer", DNS_ANSWERS)
async def test_no_answer_of_a_name_server_leads_inside(receiver: Receiver, answer: str) -> None:
    outgoing = make_outgoing(DNS_ANSWERS[answer])

    for host in ("evil.example", "metadata", "127.0.0.1.nip.io", "localtest.me", "2130706433.a"):
        with pytest.raises(AddressForbidden):
            await outgoing.send(make_request(f"http://{host}:{receiver.port}/"))


REDIRECTS = {
    "to loopback": "http://127.0.0.1:{port}/secret",
    "to the name of loopback": "http://localhost:{port}/secret",
    "to one number": "http://2130706433:{port}/secret",
    "to IPv6": "http://[::1]:{port}/secret",
    "to a mapped address": "http://[::ffff:127.0.0.1]:{port}/secret",
    "without a scheme": "//127.0.0.1:{port}/secret",
    "with user information": "http://pictures.example@127.0.0.1:{port}/secret",
    "to metadata": "http://169.254.169.254/latest/meta-data/",
    "to a file": "file:///etc/passwd",
    "to another protocol": "gopher://127.0.0.1:{port}/_secret",
    "to a name that stands for loopback": "http://evil.example:{port}/secret",
}


@pytest.mark.parametrize("redirect", REDIRECTS)
async def test_no_redirect_of_a_picture_leads_inside(store: SqliteStore, redirect: str) -> None:
    """The first address is allowed by name, so that there is a server to redirect from."""
    allowed = parse_allowed(["pictures.example"])
    services = replace(Rig(store).services, outgoing=make_outgoing(["127.0.0.1"], allowed))
    async with run_receiver() as outside:
        location = REDIRECTS[redirect].replace("{port}", str(outside.port))
        outside.answers = [CannedResponse(302, {"Location": location})]

        with pytest.raises(InvalidArgument, match="Failed to fetch image"):
            await images.fetch(services, f"http://pictures.example:{outside.port}/picture")

        assert [request.target for request in outside.all_requests] == ["/picture"]


REGIONS = [
    "evil.example/",
    "evil.example#",
    "evil.example?",
    "x@127.0.0.1:8283/",
    "127.0.0.1:8283/#",
    "..evil.example",
    "us-east-1.evil.example",
    "us east 1",
    "us-east-1\r\nX-Evil: 1",
]


@pytest.mark.parametrize("region", REGIONS)
def test_the_region_of_an_account_is_not_an_address(region: str) -> None:
    """A provider whose host name has the region in it must not be led to another host by it."""
    with pytest.raises(InvalidArgument, match="region"):
        build_account(make_provider(region=region), ProviderSettings())


@pytest.mark.parametrize("form", URL_FORMS)
def test_the_address_of_an_account_is_one_that_the_operator_allows(form: str) -> None:
    url = URL_FORMS[form].replace("{port}", "8283")
    provider = make_provider(provider_type="openai", base_url=url)

    with pytest.raises(InvalidArgument, match="HOLDFAST_ALLOWED_MODEL_ENDPOINTS"):
        build_account(provider, ProviderSettings())


def make_provider(
    provider_type: str = "bedrock", *, base_url: str | None = None, region: str | None = None
) -> Provider:
    now = datetime.now(UTC)
    return Provider(
        id="provider-1",
        organization_id="org-1",
        name="mine",
        provider_type=provider_type,
        keys=Keys(api_key="key"),
        created_at=now,
        updated_at=now,
        base_url=base_url,
        region=region,
    )
