"""Documents that attack whoever reads them: each is refused or read with a sentence that a person understands, and the next
document is read as if nothing had happened."""

import asyncio
import contextlib
import io
import random
import socket
import struct
import tempfile
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
import pytest_asyncio
from tests.support.document_files import (
    assemble_pdf,
    build_archive,
    build_docx,
    build_epub,
    build_pdf,
    build_pptx,
    build_xlsx,
    docx_members,
    encrypt_pdf,
)
from tests.support.document_readers import LEVELS, open_documents, open_sandbox
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.documents.archive_check import MAX_MEMBERS, MAX_UNPACKED_BYTES
from holdfast.adapters.documents.sandboxed import SandboxedDocuments
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.errors import DocumentUnreadable
from holdfast.ports.documents import Extracted
from holdfast.ports.sandbox import SandboxCall, SandboxLimits

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LIMITS = SandboxLimits(memory_bytes=512 * 1024**2, file_bytes=4 * 1024**2)
SECONDS = 30.0
HASTY_SECONDS = 3.0
SECRET = "the secret of this machine"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + random.Random(1).randbytes(5000)


class Reader:
    """Reads one document, and checks that nothing of it is left."""

    def __init__(self, sandbox: SubprocessSandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._documents = self._open_documents(SECONDS)

    def _open_documents(self, seconds: float) -> SandboxedDocuments:
        return SandboxedDocuments(self._sandbox, limits=LIMITS, seconds=seconds)

    @contextlib.contextmanager
    def in_haste(self) -> Iterator[None]:
        """Documents that take all the time that they are given get little."""
        self._documents = self._open_documents(HASTY_SECONDS)
        try:
            yield
        finally:
            self._documents = self._open_documents(SECONDS)

    async def read(self, data: bytes, format_: str) -> Extracted:
        path = self._folder / "upload"
        path.write_bytes(data)
        try:
            async with asyncio.timeout(WAIT_SECONDS + SECONDS):
                return await self._documents.extract(path, format_)
        finally:
            assert self._count_processes() == 0
            path.write_bytes(b"<p>next</p>")
            after = await self._open_documents(SECONDS).extract(path, "html")
            assert after.text == "next\n"

    async def read_or_refuse(self, data: bytes, format_: str) -> str:
        """The text, or the sentence why there is none."""
        try:
            return (await self.read(data, format_)).text
        except DocumentUnreadable as error:
            return str(error)

    async def refuse(self, data: bytes, format_: str) -> str:
        with pytest.raises(DocumentUnreadable) as raised:
            await self.read(data, format_)
        return str(raised.value)

    def _count_processes(self) -> int:
        servers = self._sandbox._pool._servers.values()
        children = [psutil.Process(each.process.pid).children(recursive=True) for each in servers]
        # The fork server itself is a child of the process that watches it, or of bubblewrap.
        return sum(len(each) - 1 for each in children)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Reader]:
    async with open_sandbox(request.param, LIMITS) as sandbox:
        yield Reader(sandbox, tmp_path_factory.mktemp("uploads"))


@pytest.fixture
def readable_secret() -> Iterator[Path]:
    """A file that every user of this machine may read."""
    # Not in /tmp, of which an isolated call has its own.
    with tempfile.NamedTemporaryFile("w", dir="/var/tmp", prefix="holdfast-secret-") as file:
        file.write(SECRET)
        file.flush()
        Path(file.name).chmod(0o644)
        yield Path(file.name)


def with_member(name: str, content: str | bytes) -> bytes:
    return build_archive({**docx_members(["text"]), name: content})


def with_document(prologue: str, text: str, encoding: str = "utf-8") -> bytes:
    """A Word file whose XML begins so and has that text."""
    members = docx_members([text])
    document = str(members["word/document.xml"]).partition("?>")[2]
    head = f'<?xml version="1.0" encoding="{encoding}"?>{prologue}'
    return build_archive({**members, "word/document.xml": (head + document).encode(encoding)})


def pdf_with_stream(content: bytes, dictionary: str = "") -> bytes:
    stream = (
        f"<< /Length {len(content)} {dictionary} >>\nstream\n{content.decode('latin-1')}\nendstream"
    )
    return assemble_pdf(
        [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /X 4 0 R >> >> >>",
            stream,
        ]
    )


async def test_a_pdf_with_a_password_is_refused(reader: Reader) -> None:
    sentence = await reader.refuse(encrypt_pdf(build_pdf([["text"]]), "s3cret"), "pdf")
    assert sentence.startswith("The PDF is protected with a password.")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"%PDF-1.7\n" + random.Random(2).randbytes(20_000), id="noise"),
        pytest.param(b"not a PDF at all", id="text"),
        pytest.param(b"%PDF-1.7", id="only a beginning"),
        pytest.param(PNG, id="picture"),
        pytest.param(build_pdf([["text"]])[:200], id="cut"),
    ],
)
async def test_a_broken_pdf_is_refused(reader: Reader, data: bytes) -> None:
    assert "damaged" in await reader.refuse(data, "pdf")


async def test_a_pdf_whose_table_is_not_where_it_says_is_read(reader: Reader) -> None:
    data = build_pdf([[f"Page {number}"] for number in range(20)])
    extracted = await reader.read(data.replace(b"startxref\n", b"startxref\n9"), "pdf")
    assert extracted.text.endswith("Page 18\n\nPage 19\n")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            assemble_pdf(
                [
                    "<< /Type /Catalog /Pages 2 0 R >>",
                    "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 9 >>",
                ]
            ),
            id="pages that contain themselves",
        ),
        pytest.param(
            assemble_pdf([f"<< /Type /Catalog /Pages {'[' * 200_000}{']' * 200_000} >>"]),
            id="nested arrays",
        ),
        pytest.param(
            pdf_with_stream(b"/X Do", "/Type /XObject /Subtype /Form"), id="form in itself"
        ),
        pytest.param(
            pdf_with_stream(b"[" * 200_000 + b"] TJ"), id="nested arrays of a content stream"
        ),
        pytest.param(
            pdf_with_stream(zlib.compress(bytes(300 * 1024**2), 9), "/Filter /FlateDecode"),
            id="stream that unpacks to 300 MiB",
        ),
        pytest.param(
            pdf_with_stream(
                zlib.compress(zlib.compress(bytes(300 * 1024**2), 9), 9),
                "/Filter [/FlateDecode /FlateDecode]",
            ),
            id="the same, packed twice",
        ),
        pytest.param(
            assemble_pdf(
                [
                    "<< /Type /Catalog /Pages 2 0 R >>",
                    "<< /Type /Pages /Kids [] /Count 2147483647 >>",
                ]
            ),
            id="two billion pages that are not there",
        ),
    ],
)
async def test_a_pdf_that_wants_time_or_memory_gets_no_more_than_its_limits(
    reader: Reader, data: bytes
) -> None:
    with reader.in_haste():
        await reader.read_or_refuse(data, "pdf")


async def test_the_pages_before_the_time_limit_are_kept(tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(build_pdf([[f"Page {number}"] for number in range(10_000)]))
    async with open_documents("plain", limits=LIMITS, seconds=6) as documents:
        extracted = await documents.extract(tmp_path / "upload", "pdf")
    assert extracted.text.startswith("Page 0\n\nPage 1\n\n")
    # On a fast machine all are read.
    assert extracted.text.endswith("Page 9999\n") or extracted.problem == (
        "Reading the file takes longer than 6 seconds (HOLDFAST_DOCUMENT_SECONDS). The rest of its text is missing."
    )


async def test_a_document_that_takes_too_long_before_its_first_text_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "upload").write_bytes(build_docx(["text"]))
    async with open_documents("plain", limits=LIMITS, seconds=0.01) as documents:
        with pytest.raises(DocumentUnreadable, match=r"longer than 0\.01 seconds"):
            await documents.extract(tmp_path / "upload", "docx")


async def test_a_document_that_takes_too_much_memory_is_refused(reader: Reader) -> None:
    # Each character takes four bytes in memory.
    page = ("\U0001f600".encode() + b"x" * 1000) * 150_000
    assert "HOLDFAST_DOCUMENT_MEMORY_BYTES" in await reader.refuse(page, "html")


@pytest.mark.parametrize("format_", ["docx", "pptx", "xlsx", "epub"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda: random.Random(3).randbytes(20_000), "damaged", id="noise"),
        pytest.param(lambda: build_docx(["text"])[:-100], "damaged", id="cut"),
        pytest.param(lambda: build_archive({}), "damaged", id="empty archive"),
        pytest.param(lambda: build_archive({"a.txt": "text"}), "damaged", id="another archive"),
        pytest.param(
            lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(1000),
            "protected with a password, or has the format of Office before 2007",
            id="encrypted",
        ),
        pytest.param(
            lambda: with_member("word/media/big.bin", bytes(MAX_UNPACKED_BYTES // 2)),
            "bytes when unpacked",
            id="bomb",
        ),
        pytest.param(
            lambda: build_archive({f"{n}.bin": "" for n in range(MAX_MEMBERS + 1)}),
            f"at most {MAX_MEMBERS} are read",
            id="many members",
        ),
    ],
)
async def test_broken_and_greedy_archives_are_refused(
    reader: Reader, format_: str, make: Callable[[], bytes], reason: str
) -> None:
    assert reason in await reader.refuse(make(), format_)


async def test_an_archive_that_lies_about_its_sizes_is_refused(reader: Reader) -> None:
    """The directory says 10 bytes; the member unpacks to 64 MiB."""
    data = bytearray(with_member("word/other.xml", b"x" * 64 * 1024**2))
    # The size in the header of the last member, and in its entry of the directory.
    for place in (data.rindex(b"PK\x03\x04") + 22, data.rindex(b"PK\x01\x02") + 24):
        assert struct.unpack_from("<I", data, place) == (64 * 1024**2,)
        struct.pack_into("<I", data, place, 10)
    assert "damaged" in await reader.refuse(bytes(data), "docx")


async def test_an_archive_whose_members_have_a_password_is_refused(reader: Reader) -> None:
    data = bytearray(build_docx(["text"]))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        first = archive.start_dir
    data[first + 8] |= 1
    assert "protected with a password" in await reader.refuse(bytes(data), "docx")


async def test_an_archive_in_an_archive_is_not_opened(reader: Reader) -> None:
    inner = build_archive({"big.bin": bytes(100 * 1024**2)})
    outer = with_member("word/embeddings/inner.zip", inner)
    assert (await reader.read(outer, "docx")).text == "text\n"


LAUGHS = '<!DOCTYPE x [<!ENTITY a0 "ha">' + "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("prologue", "text"),
    [
        pytest.param(f"{LAUGHS}]>", "&a9;", id="entities of entities"),
        pytest.param('<!DOCTYPE x [<!ENTITY f SYSTEM "file://{secret}">]>', "&f;", id="file"),
        pytest.param(
            '<!DOCTYPE x [<!ENTITY % f SYSTEM "file://{secret}"> %f;]>', "text", id="parameter"
        ),
        pytest.param("<!-- " + "x" * 2_000_000 + " -->" + f"{LAUGHS}]>", "&a9;", id="far behind"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_xml_entities_are_refused(
    reader: Reader, readable_secret: Path, prologue: str, text: str, encoding: str
) -> None:
    data = with_document(prologue.replace("{secret}", str(readable_secret)), text, encoding)
    sentence = await reader.refuse(data, "docx")
    assert "defines XML entities" in sentence


async def test_an_external_document_type_is_not_fetched(
    reader: Reader, readable_secret: Path
) -> None:
    data = with_document(f'<!DOCTYPE x SYSTEM "file://{readable_secret}">', "text")
    assert SECRET not in await reader.read_or_refuse(data, "docx")


async def test_a_picture_that_is_linked_to_a_file_is_not_read(
    reader: Reader, readable_secret: Path
) -> None:
    drawing = (
        '</w:t></w:r><w:r><w:drawing><wp:inline xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/'
        'wordprocessingDrawing"><a:graphic xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">'
        '<a:graphicData><pic:pic xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"><pic:blipFill>'
        '<a:blip xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" r:link="r9"/>'
        "</pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r><w:r><w:t>text"
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r9" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/image" TargetMode="External" '
        f'Target="file://{readable_secret}"/></Relationships>'
    )
    data = build_archive({**docx_members([drawing]), "word/_rels/document.xml.rels": relations})
    found = await reader.read_or_refuse(data, "docx")
    assert SECRET not in found
    # Base64 of its beginning, as pictures are written.
    assert "dGhlIHNlY3JldA" not in found


async def test_a_document_nested_too_deeply_is_refused(reader: Reader) -> None:
    deep = "</w:t></w:r>" + "<w:ins>" * 50_000 + "</w:ins>" * 50_000 + "<w:r><w:t>"
    with reader.in_haste():
        await reader.read_or_refuse(build_docx([deep]), "docx")


async def test_a_sheet_with_a_cell_at_its_far_end_is_read(reader: Reader) -> None:
    """And which says that there are 17 billion cells in between."""
    data = build_xlsx({"Sheet": [["first"]]})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
        sheet = archive.read("xl/worksheets/sheet1.xml")
    size = b'<dimension ref="A1:XFD1048576"/>'
    far = b'<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>last</t></is></c></row>'
    assert b"<dimension" not in sheet
    sheet = sheet.replace(b"<sheetData>", size + b"<sheetData>")
    sheet = sheet.replace(b"</sheetData>", far + b"</sheetData>")
    members["xl/worksheets/sheet1.xml"] = sheet
    text = (await reader.read(build_archive(members), "xlsx")).text
    assert text.split() == ["##", "Sheet", "first", "last"]


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        pytest.param("html", b"<!--" * 1_000_000, id="comments that do not end"),
        pytest.param("html", b"<" * 2_000_000, id="tags that do not end"),
        pytest.param("html", b"<div " + b"a=" * 1_000_000, id="attributes that do not end"),
        pytest.param("html", b"<div>" * 500_000, id="nested elements"),
        pytest.param("html", b"<svg>" * 100_000 + b"text", id="hidden elements"),
        pytest.param("html", b"</li></p></pre>" * 100_000, id="ends without beginnings"),
        pytest.param("html", b"&" * 2_000_000 + b"&#99999999999;", id="references"),
        pytest.param("html", b"<![CDATA[" * 300_000, id="sections that do not end"),
        pytest.param("rtf", b"{\\rtf1" + b"{" * 1_000_000, id="groups that do not end"),
        pytest.param("rtf", b"{\\rtf1" + b"}" * 1_000_000 + b"text", id="groups without beginning"),
        pytest.param("rtf", b"{\\rtf1 \\bin9999999999 text}", id="bytes that are not there"),
        pytest.param(
            "rtf", b"{\\rtf1 \\bin-5 text\\u-99999 \\uc999999 \\u55357?\\", id="odd numbers"
        ),
        pytest.param("rtf", b"{\\rtf1 \\ansicpg99999 text}", id="an unknown code page"),
        pytest.param("rtf", b"plain text", id="no RTF"),
    ],
)
async def test_markup_that_does_not_end_is_read_within_the_limits(
    reader: Reader, format_: str, data: bytes
) -> None:
    with reader.in_haste():
        await reader.read_or_refuse(data, format_)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PNG, id="picture"),
        pytest.param(zlib.compress(random.Random(4).randbytes(50_000)), id="compressed"),
        pytest.param(b"\x7fELF\x02\x01\x01" + bytes(500) + b"text" * 50, id="program"),
        pytest.param(bytes(10_000), id="zeros"),
        pytest.param(random.Random(5).randbytes(10_000), id="noise"),
    ],
)
async def test_bytes_that_are_not_text_are_refused_although_they_are_called_text(
    reader: Reader, data: bytes
) -> None:
    for format_ in ("text", "html"):
        assert "is not text" in await reader.refuse(data, format_)


VALID: dict[str, Callable[[], bytes]] = {
    "pdf": lambda: build_pdf([["one", "two"], ["three"]]),
    "docx": lambda: build_docx(["one", "two"]),
    "xlsx": lambda: build_xlsx({"one": [["a", 1]], "two": [["b"]]}),
    "pptx": lambda: build_pptx([("one", "two")]),
    "epub": lambda: build_epub(["<p>one</p>"]),
    "rtf": lambda: rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}\f0 one \'e9 \u8364? two\par}",
}


@pytest.mark.parametrize("format_", [*VALID])
async def test_damage_at_any_place_is_a_sentence_or_a_text(reader: Reader, format_: str) -> None:
    chance = random.Random(6)
    for _ in range(4):
        data = bytearray(VALID[format_]())
        for _ in range(chance.choice((1, 10, 100))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        await reader.read_or_refuse(bytes(data), format_)


async def test_a_document_reaches_nobody(reader: Reader) -> None:
    """Links, pictures and style sheets are not fetched."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        page = f'<link rel="stylesheet" href="{url}/s"><img src="{url}/i"><p>text</p>'
        await reader.read(page.encode(), "html")
        await reader.read(
            build_epub([page.replace('/s">', '/s"/>').replace('/i">', '/i"/>')]), "epub"
        )
        await reader.read_or_refuse(with_document(f'<!DOCTYPE x SYSTEM "{url}/d">', "text"), "docx")
        with pytest.raises(BlockingIOError):
            server.accept()


# A parser that tries to open sockets, in the place of a real one.
PROBE = """
import socket, sys, types
from holdfast.adapters.documents import extraction

def read(document, output):
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        try:
            socket.socket(family, socket.SOCK_DGRAM).close()
            output.write("opened ")
        except PermissionError:
            output.write("refused ")

parser = sys.modules["holdfast.adapters.documents.probe"] = types.ModuleType("probe")
parser.read = read
extraction._READERS["probe"] = ("probe", "read")

def tool():
    return extraction.extract("probe")
"""


@pytest.mark.parametrize("level", LEVELS)
async def test_the_process_of_a_document_has_no_network(level: str) -> None:
    with tempfile.TemporaryFile() as document, tempfile.TemporaryFile() as text:
        async with open_sandbox(level) as sandbox:
            result = await sandbox.run(
                SandboxCall(
                    source=PROBE,
                    function="tool",
                    arguments={},
                    timeout_seconds=WAIT_SECONDS,
                    env={},
                    descriptors=(document.fileno(), text.fileno()),
                )
            )
        assert result.value == {"problem": None}, result.error
        text.seek(0)
        assert text.read() == b"refused refused refused "
