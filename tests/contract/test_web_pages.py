"""Reading pages of the web: under the rule for addresses, within limits, and whatever the page is made of."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from ipaddress import ip_network
from types import SimpleNamespace
from typing import cast

import pytest
import pytest_asyncio
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver
from tests.support.document_files import build_pdf
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.documents.sandboxed import SandboxedDocuments
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.outgoing.lookup import Lookup, Resolve
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.web import page_text
from holdfast.adapters.web.pages import WebPages
from holdfast.adapters.web.search import SearchOptions, WebSearch
from holdfast.adapters.web.site import MAX_BYTES, MAX_REDIRECTS
from holdfast.core.addresses import AllowedAddresses
from holdfast.errors import ToolError
from holdfast.ports.sandbox import Sandbox, SandboxCall, SandboxLimits, SandboxResult
from holdfast.ports.services import Services

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ORG = "org-1"
# Public by the rule, but nobody has it: tests connect to this machine only.
PUBLIC = "2e00::1"
LOOPBACK = AllowedAddresses(networks=(ip_network("127.0.0.0/8"),))
SITE = "site.example"
HTML = {"Content-Type": "text/html; charset=utf-8"}


def widen(text: str) -> str:
    """The same in the wide letters of East Asia."""
    return "".join(chr(ord(letter) + 0xFEE0) for letter in text)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)


class Reader:
    """The tool as one server has it. Only what is ``allowed`` may lead to this machine."""

    def __init__(
        self,
        receiver: Receiver,
        sandbox: Sandbox,
        *,
        seconds: float = WAIT_SECONDS,
        resolve: Resolve | None = None,
        allowed: AllowedAddresses = AllowedAddresses(hosts=frozenset({SITE})),  # noqa: B008 - it is immutable
    ) -> None:
        self.receiver = receiver
        self.clock = Clock()
        # What names resolve to, in turn; after that to this machine.
        self.resolved: list[list[str]] = []
        documents = SandboxedDocuments(sandbox, limits=SandboxLimits(), seconds=WAIT_SECONDS)
        self._services = SimpleNamespace(
            outgoing=GuardedOutgoing(allowed, Lookup(allowed, resolve or self._resolve)),
            clock=self.clock,
            documents=documents,
        )
        self._sandbox = sandbox
        addresses = {"exa": f"{receiver.url}/exa"}
        self._pages = WebPages(WebSearch(SearchOptions(addresses=addresses)), max_seconds=seconds)

    def _resolve(self, host: str, _port: int) -> Sequence[str]:
        if host == "metadata.example":
            return ["169.254.169.254"]
        return self.resolved.pop(0) if self.resolved else ["127.0.0.1"]

    @property
    def url(self) -> str:
        return f"http://{SITE}:{self.receiver.port}"

    async def read(self, url: str, organization_id: str = ORG, **secrets: str) -> str:
        services = cast("Services", self._services)
        async with asyncio.timeout(2 * WAIT_SECONDS):
            return await self._pages.read(services, self._sandbox, organization_id, url, secrets)

    async def show(self, body: bytes | str, **headers: str) -> str:
        """What the tool returns for a page with this body."""
        data = body.encode() if isinstance(body, str) else body
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.receiver.answers = [CannedResponse(200, {"Cache-Control": "no-store", **given}, data)]
        return await self.read(f"{self.url}/page")

    async def refusal(self, url: str) -> str:
        with pytest.raises(ToolError) as raised:
            await self.read(url)
        return str(raised.value)

    async def problem(self, body: bytes | str, **headers: str) -> str:
        with pytest.raises(ToolError) as raised:
            await self.show(body, **headers)
        return str(raised.value)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["plain", "isolated"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    isolation = Isolation(network=False) if request.param == "isolated" else None
    if isolation is not None and (problem := isolation_problem(isolation)) is not None:
        pytest.skip(problem)
    made = SubprocessSandbox(isolation=isolation)
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain_sandbox() -> AsyncIterator[Sandbox]:
    made = SubprocessSandbox()
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncIterator[Receiver]:
    async with run_receiver() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def reader(receiver: Receiver, plain_sandbox: Sandbox) -> Reader:
    return Reader(receiver, plain_sandbox)


async def test_a_page_becomes_markdown_at_both_levels(receiver: Receiver, sandbox: Sandbox) -> None:
    page = "<h1>Café</h1><p>Go <a href='/on'>on</a>.<ul><li>one"

    text = await Reader(receiver, sandbox).show(page, Content_Type="text/html")

    assert text == f"# Café\n\nGo [on](http://{SITE}:{receiver.port}/on).\n\n- one\n"
    asked = await receiver.next_request()
    assert asked.headers["user-agent"].startswith("Holdfast/")
    assert asked.headers["host"] == f"{SITE}:{receiver.port}"


@pytest.mark.parametrize(
    ("body", "media_type", "text"),
    [
        (b"plain <b>text</b>", "text/plain", "plain <b>text</b>"),
        ("größer".encode("cp1252"), "text/plain", "größer"),
        ("漢字".encode("shift_jis"), "text/plain; charset=shift_jis", "漢字"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<feed/>", "application/atom+xml", "<feed/>"),
        (b"<!DOCTYPE html><p>no type", "", "no type\n"),
        (b"<p>x", 'TEXT/HTML;charset="utf-8"', "x\n"),
        (b"", "text/html", ""),
        (build_pdf([["From a PDF"]]), "application/pdf", "From a PDF\n"),
        (build_pdf([["From a PDF"]]), "application/octet-stream", "From a PDF\n"),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_pages_of_other_kinds_are_read_too(
    reader: Reader, body: bytes, media_type: str, text: str
) -> None:
    assert await reader.show(body, Content_Type=media_type) == text


@pytest.mark.parametrize("charset", ["utf-7", "unicode_escape", "raw_unicode_escape", "utf-16"])
@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
async def test_a_page_has_no_halves_of_surrogate_pairs(
    reader: Reader, charset: str, kind: str
) -> None:
    """What makes them are encodings that no browser knows; UTF-8 cannot store them."""
    body = b"one +2AA- \\ud800 two"

    text = await reader.show(body, Content_Type=f"{kind}; charset={charset}")
    declared = await reader.show(b"<meta charset=%b>" % charset.encode() + body, Content_Type=kind)

    assert text.strip() == body.decode()
    assert declared.encode().endswith(body + (b"\n" if kind == "text/html" else b""))


@pytest.mark.parametrize(
    ("body", "media_type", "says"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "image/png", "a file of the type image/png"),
        (b"\0\1\2\3" * 100, "application/octet-stream", "application/octet-stream"),
        (b"\0\1\2\3" * 100, "text/html", "not text"),
        (b"<div id=root></div>", "text/html", "may be made by scripts"),
    ],
)
async def test_what_has_no_text_is_a_sentence(
    reader: Reader, body: bytes, media_type: str, says: str
) -> None:
    problem = await reader.problem(body, Content_Type=media_type)

    assert problem.startswith("Error fetching webpage: ")
    assert says in problem


@pytest.mark.tools(66)
@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("file:///etc/passwd", "file"),
        ("ftp://site.example/", "ftp"),
        ("data:text/html,x", "data"),
        ("site.example/page", ""),
        ("/etc/passwd", ""),
        ("http//[x", ""),
    ],
)
async def test_other_schemes_are_refused_in_v1s_words(
    reader: Reader, url: str, scheme: str
) -> None:
    assert await reader.refusal(url) == (
        f"Invalid URL scheme '{scheme}'. Only 'http' and 'https' URLs are supported. "
        "Local file paths (file://) and other protocols cannot be fetched."
    )


PRIVATE = [
    *("http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/"),
    *("http://169.254.169.254/latest/meta-data/", "http://metadata.example/", "http://10.0.0.1/"),
    *(
        "http://0x7f000001:{port}/",
        "http://2130706433:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
    ),
    "http://user@site.example:{port}/",
]


@pytest.mark.tools(66)
@pytest.mark.parametrize("url", PRIVATE)
async def test_private_addresses_are_refused(reader: Reader, url: str) -> None:
    refusal = await reader.refusal(url.format(port=reader.receiver.port))

    assert refusal.startswith("Error fetching webpage: This address cannot be used: ")
    assert reader.receiver.all_requests == []


@pytest.mark.parametrize("url", [*PRIVATE, "//127.0.0.1:{port}/"])
async def test_private_addresses_are_refused_after_a_redirect(reader: Reader, url: str) -> None:
    location = url.format(port=reader.receiver.port)
    reader.receiver.answers = [CannedResponse(302, {"Location": location}, b"")]

    refusal = await reader.refusal(f"{reader.url}/start")

    assert "This address cannot be used: " in refusal
    assert [asked.target for asked in reader.receiver.all_requests] == ["/start"]


async def test_a_redirect_to_another_scheme_is_refused(reader: Reader) -> None:
    reader.receiver.answers = [CannedResponse(302, {"Location": "file:///etc/passwd"}, b"")]

    assert "Invalid URL scheme 'file'" in await reader.refusal(f"{reader.url}/start")


async def test_redirects_are_followed_up_to_a_limit(reader: Reader) -> None:
    steps = [CannedResponse(301, {"Location": f"step ü{n}?a=b c"}, b"") for n in range(5)]
    assert len(steps) == MAX_REDIRECTS
    end = CannedResponse(200, {**HTML, "Cache-Control": "no-store"}, b"<a href=x>there</a>")
    reader.receiver.answers = [*steps, end]

    text = await reader.read(f"{reader.url}/a/b")

    assert text == f"[there]({reader.url}/a/x)\n"
    targets = [asked.target for asked in reader.receiver.all_requests]
    # A header has bytes; those of the receiver are UTF-8.
    assert targets[:2] == ["/a/b", "/a/step%20%C3%BC0?a=b%20c"]

    reader.receiver.answers = [CannedResponse(302, {"Location": "/again"}, b"")]
    assert "more than 5 redirects" in await reader.refusal(f"{reader.url}/again")
    assert len(reader.receiver.all_requests) == len(targets) + MAX_REDIRECTS + 1


async def test_spaces_and_umlauts_of_an_address_are_encoded(reader: Reader) -> None:
    reader.receiver.answers = [CannedResponse(200, HTML, b"x")]

    await reader.read(f"  {reader.url}/Größe und mehr?q=ä#Teil ")

    assert reader.receiver.all_requests[0].target == "/Gr%C3%B6%C3%9Fe%20und%20mehr?q=%C3%A4"


@pytest.mark.parametrize(
    ("host", "encoded"),
    [
        ("münchen.example", "xn--mnchen-3ya.example"),
        ("Straße.Example", "xn--strae-oqa.example"),
        ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
        # What other notations mean is judged as if it had been written so.
        (widen("site.example"), "site.example"),
    ],
)
async def test_a_host_with_umlauts_is_asked_by_its_encoded_name(
    receiver: Receiver, plain_sandbox: Sandbox, host: str, encoded: str
) -> None:
    """Also where a redirect leads to, in the bytes of UTF-8."""
    reader = Reader(receiver, plain_sandbox, allowed=AllowedAddresses(hosts=frozenset({encoded})))
    url = f"http://{host}:{receiver.port}"
    reader.receiver.answers = [
        CannedResponse(302, {"Location": f"{url}/über"}, b""),
        CannedResponse(200, HTML, b"x"),
    ]

    assert await reader.read(f"{url}/straße") == "x\n"

    asked = reader.receiver.all_requests
    assert [one.headers["host"] for one in asked] == [f"{encoded}:{receiver.port}"] * 2
    assert [one.target for one in asked] == ["/stra%C3%9Fe", "/%C3%BCber"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"http://{widen('127.0.0.1')}/", "127.0.0.1 is not a public address"),
        (f"http://{widen('localhost')}/", "localhost is not a public address"),
        ("http://user@münchen.example/", "a name or a password in front of the host"),
        ("http://ö..example/", "'ö..example' is not the name of a host"),
        (f"http://{'ö' * 60}.example/", "is not the name of a host"),
        ("http://ma℀b.example/", "Invalid URL scheme ''"),
    ],
)
async def test_a_host_with_umlauts_obeys_the_same_rule(reader: Reader, url: str, says: str) -> None:
    assert says in await reader.refusal(url)
    assert reader.receiver.all_requests == []


@pytest.mark.parametrize("location", ["http://[x", "http://ö..example/", "http://ma℀b.example/"])
async def test_a_redirect_to_what_is_no_address_is_a_sentence(
    reader: Reader, location: str
) -> None:
    reader.receiver.answers = [CannedResponse(302, {"Location": location}, b"")]

    assert (await reader.refusal(f"{reader.url}/start")).startswith("Error fetching webpage: ")


async def test_half_a_surrogate_pair_in_an_address_is_replaced(reader: Reader) -> None:
    reader.receiver.answers = [CannedResponse(200, HTML, b"x")]

    await reader.read(f"{reader.url}/a\ud83d")

    assert reader.receiver.all_requests[0].target == "/a%EF%BF%BD"


@pytest.mark.parametrize("status", [204, 304, 401, 404, 500, 503])
async def test_a_site_that_has_no_page_is_quoted(reader: Reader, status: int) -> None:
    reader.receiver.answers = [CannedResponse(status, {}, b"")]

    refusal = await reader.refusal(f"{reader.url}/page")

    assert refusal == f"Error fetching webpage: {SITE} answered HTTP {status}."


async def test_a_page_that_is_too_large_is_not_read_to_its_end(reader: Reader) -> None:
    problem = await reader.problem(b"x" * (MAX_BYTES + 1), Content_Type="text/plain")

    assert problem == f"Error fetching webpage: The answer is larger than {MAX_BYTES} bytes."


async def test_compressed_pages_are_read_and_bombs_are_not(reader: Reader) -> None:
    page, kind = b"<p>small</p>", "text/html"
    bomb = gzip.compress(bytes(50 * MAX_BYTES))
    assert len(bomb) < MAX_BYTES

    packed = await reader.show(gzip.compress(page), Content_Type=kind, Content_Encoding="gzip")
    zipped = await reader.show(zlib.compress(page), Content_Type=kind, Content_Encoding="deflate")
    problem = await reader.problem(bomb, Content_Type=kind, Content_Encoding="gzip")
    lie = await reader.problem(page, Content_Type=kind, Content_Encoding="gzip")
    unknown = await reader.problem(page, Content_Type=kind, Content_Encoding="br")

    assert packed == zipped == "small\n"
    assert problem == f"Error fetching webpage: it is larger than {MAX_BYTES} bytes."
    assert "cannot be decompressed" in lie
    assert "compression 'br' is not supported" in unknown


async def test_a_compressed_page_of_several_parts_is_read_whole(reader: Reader) -> None:
    """As tools for logs and backups write it; padding may follow the last part."""
    parts = gzip.compress(b"one ") + gzip.compress(b"two ") + gzip.compress(b"three")
    many = gzip.compress(b"") * 100_000 + gzip.compress(b"end")
    bomb = gzip.compress(bytes(MAX_BYTES)) + gzip.compress(b"x")
    kind = {"Content_Type": "text/plain", "Content_Encoding": "gzip"}

    assert await reader.show(parts, **kind) == "one two three"
    assert await reader.show(parts + bytes(512), **kind) == "one two three"
    assert await reader.show(many, **kind) == "end"
    assert await reader.show(b"", **kind) == ""
    assert f"larger than {MAX_BYTES} bytes" in await reader.problem(bomb, **kind)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_page_that_ends_early_is_no_page(reader: Reader, coding: str) -> None:
    page = b"<p>" + b"one two three " * 1000
    packed = gzip.compress(page) if coding == "gzip" else zlib.compress(page)
    kind = {"Content-Type": "text/html", "Content-Encoding": coding}
    reader.receiver.answers = [
        *(CannedResponse(200, kind, packed[:end]) for end in (1, 20, len(packed) - 1)),
        CannedResponse(200, kind, gzip.compress(b"<p>whole") + gzip.compress(b"part")[:-9]),
        CannedResponse(200, kind, packed),
    ]

    for _ in range(4):
        assert await reader.refusal(f"{reader.url}/page") == (
            "Error fetching webpage: its compressed data ends early."
        )
    # Nothing of them was kept.
    assert (await reader.read(f"{reader.url}/page")).startswith("one two three")


async def test_a_page_that_arrives_drop_by_drop_ends_in_time(
    receiver: Receiver, plain_sandbox: Sandbox
) -> None:
    """The time is that of the whole page, and not of each drop."""
    has_begun, is_closed = asyncio.Event(), asyncio.Event()

    async def drip(stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stream.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
        has_begun.set()
        end = None
        with suppress(ConnectionError):
            while end is None:
                writer.write(b"x")
                with suppress(TimeoutError):
                    end = await asyncio.wait_for(stream.read(1), 0.01)
        is_closed.set()
        writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        receiver.port = server.sockets[0].getsockname()[1]
        reader = Reader(receiver, plain_sandbox, seconds=3)

        assert "longer than 3 s to arrive." in await reader.refusal(f"{reader.url}/")
        async with asyncio.timeout(WAIT_SECONDS):
            await has_begun.wait()
            await is_closed.wait()


class BusySandbox:
    """All its slots are taken for ever."""

    async def run(self, _call: SandboxCall) -> SandboxResult:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None: ...


async def test_waiting_for_the_sandbox_is_not_told_as_the_fault_of_the_site(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take longer than a page may take to arrive, but not for ever."""
    monkeypatch.setattr(page_text, "MAX_EXTRACTION_SECONDS", 1.5)
    monkeypatch.setattr(page_text, "MAX_WAIT_SECONDS", 1.5, raising=False)
    reader = Reader(receiver, BusySandbox(), seconds=2)
    receiver.answers = [CannedResponse(200, HTML, b"x")]

    assert await reader.refusal(f"{reader.url}/") == (
        "Error fetching webpage: it has arrived, but this server is too busy to read it. Try again later."
    )


async def test_cancelling_closes_the_request(reader: Reader) -> None:
    reader.receiver.answers = [None]

    running = asyncio.create_task(reader.read(f"{reader.url}/"))
    await reader.receiver.next_request()
    (serving,) = reader.receiver._hanging
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    # The receiver waits for the end of the connection.
    async with asyncio.timeout(WAIT_SECONDS):
        await serving


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 300_000 + "deep",
        "<ul><li>" * 50_000 + "deep",
        "<b>" * 100_000 + "deep" + "</b>" * 100_000,
        "</ul></li></pre></a></nav></h1>" * 10_000 + "deep",
        "<!DOCTYPE html [" + '<!ENTITY a "' + "x" * 1000 + '">]>' + "&a;" * 1000 + "deep",
    ],
    ids=["div", "ul", "b", "ends", "entities"],
)
async def test_nested_elements_do_no_harm(reader: Reader, page: str) -> None:
    assert "deep" in await reader.show(page, Content_Type="text/html")


async def test_a_page_that_occupies_the_parser_is_read_as_far_as_it_gets(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on meanwhile: the parser is in another process, which is killed."""
    monkeypatch.setattr(page_text, "MAX_EXTRACTION_SECONDS", 2.0)
    page = "<p>" + "beginning " * 20_000 + "<a href=x>" * 900_000

    text = await reader.show(page, Content_Type="text/html")

    assert text.startswith("beginning beginning")
    assert text.endswith("longer than 2 seconds. The rest is missing.]")


async def test_a_page_with_very_much_text_is_cut(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_text, "MAX_TEXT_BYTES", 1000)

    text = await reader.show("<p>" + "x" * 5000, Content_Type="text/html")

    assert (
        text
        == "x" * 1000 + "\n[The text of the page has more than 1000 bytes. The rest is missing.]"
    )


async def test_a_page_cannot_name_files_or_open_connections(reader: Reader) -> None:
    page = "<base href='file:///etc/'><a href=passwd>a</a><img src=shadow alt=b><iframe src=x></iframe>"

    text = await reader.show(page, Content_Type="text/html")

    assert text == f"[a]({reader.url}/passwd)![b]({reader.url}/shadow)\n"
    assert len(reader.receiver.all_requests) == 1


async def test_a_page_is_asked_for_once_in_a_while(reader: Reader) -> None:
    reader.receiver.answers = [CannedResponse(200, HTML, b"one"), CannedResponse(200, HTML, b"two")]
    url = f"{reader.url}/page"

    first, again = await reader.read(url), await reader.read(url)
    other = await reader.read(url, organization_id="org-2")
    reader.clock.seconds = 301
    later = await reader.read(url)

    assert (first, again, other, later) == ("one\n", "one\n", "two\n", "two\n")
    assert len(reader.receiver.all_requests) == 3


@pytest.mark.parametrize("directive", ["no-store", "private", "no-cache", "max-age=0"])
async def test_a_site_may_forbid_to_keep_its_page(reader: Reader, directive: str) -> None:
    """Also where it only leads to another page."""
    forbidden = {"Cache-Control": directive}
    reader.receiver.answers = [
        CannedResponse(302, {**forbidden, "Location": "/b"}, b""),
        CannedResponse(200, HTML, b"one"),
        CannedResponse(200, {**HTML, **forbidden}, b"two"),
        CannedResponse(200, HTML, b"three"),
    ]

    found = [await reader.read(f"{reader.url}/a") for _ in range(3)]

    assert found == ["one\n", "two\n", "three\n"]


async def test_failures_are_not_kept(reader: Reader) -> None:
    reader.receiver.answers = [CannedResponse(500, {}, b""), CannedResponse(200, HTML, b"fine")]

    assert "HTTP 500" in await reader.refusal(f"{reader.url}/")
    assert await reader.read(f"{reader.url}/") == "fine\n"


async def test_exa_is_asked_first_if_there_is_a_key(reader: Reader) -> None:
    page = {"title": "T", "url": "u", "publishedDate": "2025-01-01", "author": "A", "text": "Text."}
    body = json.dumps({"results": [page]}).encode()
    reader.receiver.answers = [CannedResponse(200, {}, body)]
    reader.resolved = [[PUBLIC, "2e00::2"]]

    text = await reader.read("https://public.example/", EXA_API_KEY="own")

    assert json.loads(text) == {
        "title": "T",
        "published_date": "2025-01-01",
        "author": "A",
        "text": "Text.",
    }
    # Kept in this form only for those who have a key.
    assert await reader.read("https://public.example/", EXA_API_KEY="other") == text
    assert len(reader.receiver.all_requests) == 1
    asked = await reader.receiver.next_request()
    assert (asked.target, asked.headers["x-api-key"]) == ("/exa/contents", "own")
    assert json.loads(asked.body) == {"urls": ["https://public.example/"], "text": True}


@pytest.mark.parametrize(
    "answer",
    [
        CannedResponse(500, {}, b"broken"),
        CannedResponse(200, {}, b'{"results": []}'),
        CannedResponse(200, {}, b'{"results": [{"title": "T"}]}'),
        CannedResponse(200, {}, b'{"results": [{"title": "T", "text": null}]}'),
        CannedResponse(200, {}, b'{"results": [{"title": "T", "text": " \\n"}]}'),
        CannedResponse(200, {}, b'{"results": [{"title": "T", "text": ["x"]}]}'),
        CannedResponse(200, {}, b"null"),
        CannedResponse(200, {}, b"<html>"),
    ],
)
async def test_a_page_that_exa_does_not_have_is_read_from_its_site(
    receiver: Receiver, plain_sandbox: Sandbox, answer: CannedResponse
) -> None:
    reader = Reader(receiver, plain_sandbox, allowed=LOOPBACK)
    reader.resolved = [[PUBLIC]]
    receiver.answers = [answer, CannedResponse(200, HTML, b"from the site")]

    text = await reader.read(f"http://public.example:{receiver.port}/page", EXA_API_KEY="own")

    assert text == "from the site\n"
    assert [asked.target for asked in receiver.all_requests] == ["/exa/contents", "/page"]


async def test_half_a_surrogate_pair_in_a_page_of_exa_is_replaced(reader: Reader) -> None:
    reader.resolved = [[PUBLIC]]
    page = rb'{"results": [{"title": "a\ud83d", "author": ["x"], "text": "b\ude00\u0000"}]}'
    reader.receiver.answers = [CannedResponse(200, {}, page)]

    text = await reader.read("https://public.example/", EXA_API_KEY="own")

    assert json.loads(text.encode()) == {
        "title": "a\ufffd",
        "published_date": None,
        "author": None,
        "text": "b\ufffd",
    }


@pytest.mark.parametrize(
    "addresses",
    [["169.254.169.254"], ["10.0.0.1"], ["fd00::1"], ["::ffff:10.0.0.1"], [PUBLIC, "10.0.0.1"], []],
    ids=str,
)
async def test_exa_hears_nothing_of_a_name_that_leads_into_a_private_network(
    reader: Reader, addresses: list[str]
) -> None:
    """The path and the query of an inner address are nobody else's business."""
    reader.resolved = [addresses]
    reader.receiver.answers = [CannedResponse(200, {}, b'{"results": [{"text": "Text."}]}')]

    with pytest.raises(ToolError, match="is not a public address"):
        await reader.read("http://inner.example/reset?token=private", EXA_API_KEY="own")

    assert reader.receiver.all_requests == []


@pytest.mark.parametrize("host", [SITE, "127.0.0.1", "inner.example"])
async def test_exa_hears_nothing_of_what_the_operator_allows(
    receiver: Receiver, plain_sandbox: Sandbox, host: str
) -> None:
    """Even if the name has a public address where the server is."""
    allowed = AllowedAddresses(hosts=frozenset({SITE}), networks=LOOPBACK.networks)
    reader = Reader(receiver, plain_sandbox, allowed=allowed)
    receiver.answers = [CannedResponse(200, HTML, b"inside")]

    text = await reader.read(f"http://{host}:{receiver.port}/a?token=private", EXA_API_KEY="own")

    assert text == "inside\n"
    assert [asked.target for asked in receiver.all_requests] == ["/a?token=private"]


async def test_exa_is_not_asked_for_a_name_that_nobody_knows(
    receiver: Receiver, plain_sandbox: Sandbox
) -> None:
    def resolve(_host: str, _port: int) -> Sequence[str]:
        raise OSError("unknown")

    reader = Reader(receiver, plain_sandbox, resolve=resolve)

    with pytest.raises(ToolError, match=r"The host inner\.example was not found"):
        await reader.read("http://inner.example/?token=private", EXA_API_KEY="own")
    assert receiver.all_requests == []


async def test_a_page_is_read_without_exa_if_its_key_cannot_be_one(reader: Reader) -> None:
    reader.receiver.answers = [CannedResponse(200, HTML, b"from the site")]

    text = await reader.read(f"{reader.url}/page", EXA_API_KEY="top\nsecret")

    assert text == "from the site\n"
    assert [asked.target for asked in reader.receiver.all_requests] == ["/page"]


async def test_exa_is_not_asked_for_what_may_not_be_fetched(reader: Reader) -> None:
    for url in ("file:///etc/passwd", "http://127.0.0.1/"):
        with pytest.raises(ToolError):
            await reader.read(url, EXA_API_KEY="own")

    assert reader.receiver.all_requests == []
