"""What Documents promises (ports/documents.py), shown with real documents, processes and levels of the sandbox. Hostile
documents are in tests/attack/test_documents.py."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.document_files import (
    build_docx,
    build_epub,
    build_pdf,
    build_pptx,
    build_xlsx,
    encrypt_pdf,
)
from tests.support.document_readers import LEVELS, open_documents, open_sandbox
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.documents import sandboxed
from holdfast.adapters.documents.sandboxed import SandboxedDocuments
from holdfast.adapters.sandbox.isolation import isolation_problem
from holdfast.assembly import documents as assembly
from holdfast.assembly.tools import build_isolation
from holdfast.config import Settings
from holdfast.errors import BackendError, DocumentUnreadable
from holdfast.ports.documents import NO_DOCUMENTS, Documents, Extracted
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

OFFICE = "application/vnd.openxmlformats-officedocument."


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def documents(request: pytest.FixtureRequest) -> AsyncIterator[Documents]:
    async with open_documents(request.param) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain_documents() -> AsyncIterator[Documents]:
    async with open_documents("plain") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the server's home: closed to the user of tools."""
    tmp_path.chmod(0o700)
    return tmp_path


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def read(documents: Documents, folder: Path, data: bytes, name: str) -> Extracted:
    path = folder / "upload"
    path.write_bytes(data)
    found = documents.find_format(name, None, data[:4096])
    assert found is not None
    async with asyncio.timeout(WAIT_SECONDS):
        return await documents.extract(path, found)


HTML = """<!DOCTYPE html><html><head><title>Tides</title><style>p {color: red}</style>
<script>document.write("<p>never</p>")</script></head><body>
<h1>Tides &amp; moons</h1><p>The   sea <b>rises</b>
twice a day.<br>Or once.</p><template>hidden</template>
<ul><li><p>spring</p></li><li>neap</li></ul>
<table><tr><th>port</th> <th>metres</th></tr><tr><td>Saint-Malo</td><td>12</td></tr></table>
<pre>def f():
    return 1</pre></body></html>"""

HTML_TEXT = """Tides

Tides & moons

The sea rises twice a day.
Or once.

- spring

- neap

port\tmetres
Saint-Malo\t12

def f():
    return 1
"""

RTF = (
    rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\*\generator Word;}{\info{\title secret}}"
    rb"\f0 The \b sea\b0  rises.\par caf\'e9, \u8364?5, \u-10179?\u-8704?\par \{ok\}}"
)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.txt", b"one\r\ntwo\rthree\n", "one\ntwo\nthree\n"),
        ("a.py", b"def f():\n    return 1\n", "def f():\n    return 1\n"),
        ("a.csv", b"a;b\n1;2", "a;b\n1;2"),
        (
            "a.pdf",
            build_pdf([["Tides", "rise twice."], ["The moon."]]),
            "Tides\nrise twice.\n\nThe moon.\n",
        ),
        (
            "a.html",
            HTML.encode(),
            HTML_TEXT,
        ),
        ("a.rtf", RTF, "The sea rises.\ncafé, €5, \U0001f600\n{ok}\n"),
        ("a.docx", build_docx(["The sea", "rises &amp; falls"]), "The sea\n\nrises & falls\n"),
        (
            "a.xlsx",
            build_xlsx(
                {"Ports": [["port", "m"], ["St-Malo", 12]], "Empty": [], "Two": [[None, 1]]}
            ),
            "## Ports\nport\tm\nSt-Malo\t12\n\n## Empty\n\n## Two\n\t1\n",
        ),
        (
            "a.pptx",
            build_pptx([("Tides", "They rise."), ("Moons", "One.")]),
            "<!-- Slide number: 1 -->\n# Tides\nThey rise.\n\n<!-- Slide number: 2 -->\n# Moons\nOne.\n",
        ),
        (
            "a.epub",
            build_epub(["<h1>Tides</h1><p>They rise.</p>", "<p>They fall.</p>"]),
            "**Title:** The Book\n\n# Tides\n\nThey rise.\n\nThey fall.\n",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("a.") else "",
)
async def test_the_text_of_each_format_is_extracted(
    documents: Documents, folder: Path, name: str, data: bytes, text: str
) -> None:
    assert await read(documents, folder, data, name) == Extracted(text=text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param("Größe 漢字".encode(), "Größe 漢字", id="UTF-8"),
        pytest.param("Größe".encode("utf-8-sig"), "Größe", id="UTF-8 with a mark"),
        pytest.param("Größe 漢字".encode("utf-16"), "Größe 漢字", id="UTF-16"),
        pytest.param(b"\xfe\xff" + "Größe".encode("utf-16-be"), "Größe", id="UTF-16, big-endian"),
        pytest.param("Größe".encode("utf-32"), "Größe", id="UTF-32"),
        pytest.param(
            "a plain text".encode("utf-16-le"), "a plain text", id="UTF-16 without a mark"
        ),
        pytest.param("a plain text".encode("utf-16-be"), "a plain text", id="the same, big-endian"),
        pytest.param("Größe “€”".encode("cp1252"), "Größe “€”", id="Windows-1252"),
        pytest.param(b"caf\xe9", "café", id="Windows-1252 that ends like cut UTF-8"),
        pytest.param(b"odd \x81 byte \xff", "odd \ufffd byte ÿ", id="no character in any"),
        pytest.param("漢字漢字".encode()[:-1], "漢字漢\ufffd", id="UTF-8 that is cut"),
        pytest.param(b"a\0b\0", "ab", id="NUL"),
        pytest.param(
            b"\x1b[31mred\x1b[0m\x0cpage\x0b", "\x1b[31mred\x1b[0m\x0cpage\x0b", id="controls"
        ),
        pytest.param(b"", "", id="empty"),
        pytest.param(b"\r\n" * 3 + b"\r", "\n" * 4, id="blank lines"),
    ],
)
async def test_text_is_decoded_whatever_its_encoding(
    plain_documents: Documents, folder: Path, data: bytes, text: str
) -> None:
    path = folder / "a.txt"
    path.write_bytes(data)
    assert await plain_documents.extract(path, "text") == Extracted(text=text)


@pytest.mark.parametrize("edge", range(-3, 4))
async def test_pieces_do_not_cut_characters_or_line_ends(
    plain_documents: Documents, folder: Path, edge: int
) -> None:
    """The file is decoded a megabyte at a time."""
    text = "x" * (1024**2 + edge) + "漢\r\n字" * 3
    path = folder / "a.txt"
    path.write_bytes(text.encode())
    extracted = await plain_documents.extract(path, "text")
    assert extracted.text == text.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("meta", "encoding"),
    [("shift_jis", "shift_jis"), ("iso-8859-1", "utf-8"), ("latin1", "cp1252"), ("rot13", "utf-8")],
)
async def test_the_encoding_that_a_page_declares_counts_if_it_can_be(
    plain_documents: Documents, folder: Path, meta: str, encoding: str
) -> None:
    word = "漢字" if encoding == "shift_jis" else "Größe"
    page = f'<meta charset="{meta}"><p>{word}</p>'.encode(encoding)
    assert (await read(plain_documents, folder, page, "a.html")).text == f"{word}\n"


async def test_a_picture_that_does_not_end_hides_no_more_than_its_element(
    plain_documents: Documents, folder: Path
) -> None:
    page = b"<p>one<div><svg><path></div>two<svg><title>x<main>three<svg>x</svg><li>four"
    extracted = await read(plain_documents, folder, page, "a.html")
    assert extracted.text == "one\ntwo\n\nthree\n- four\n"


async def test_the_text_of_an_empty_file_is_empty_whatever_it_is_called(
    plain_documents: Documents, folder: Path
) -> None:
    for name in ("a.pdf", "a.docx", "a.html"):
        assert await read(plain_documents, folder, b"", name) == Extracted(text="")


async def test_a_pdf_of_pictures_has_no_text_and_a_problem(
    plain_documents: Documents, folder: Path
) -> None:
    extracted = await read(plain_documents, folder, build_pdf([[], []]), "scan.pdf")
    assert extracted.text == ""
    assert extracted.problem is not None
    assert "no text (2 pages): its pages are probably pictures" in extracted.problem


async def test_a_pdf_that_is_encrypted_without_a_password_is_read(
    plain_documents: Documents, folder: Path
) -> None:
    data = encrypt_pdf(build_pdf([["The sea."]]), "")
    assert (await read(plain_documents, folder, data, "a.pdf")).text == "The sea.\n"


async def test_a_text_larger_than_an_answer_of_a_tool_comes_back(
    plain_documents: Documents, folder: Path
) -> None:
    page = "<p>" + "The sea rises. " * 400_000 + "</p>"
    extracted = await read(plain_documents, folder, page.encode(), "a.html")
    assert (len(extracted.text), extracted.problem) == (15 * 400_000, None)


async def test_what_was_read_before_a_limit_is_kept_with_a_problem(folder: Path) -> None:
    limits = SandboxLimits(file_bytes=1000)
    data = build_pdf([[f"Page {number}", "x" * 50] for number in range(40)])
    async with open_documents("plain", limits=limits) as documents:
        extracted = await read(documents, folder, data, "a.pdf")
    assert extracted.text.startswith("Page 0\n")
    assert len(extracted.text) == 1000
    assert extracted.problem == (
        "The text of the file has more than 1000 bytes (HOLDFAST_DOCUMENT_TEXT_BYTES). "
        "The rest of its text is missing."
    )


async def test_without_the_extra_office_files_are_refused_and_the_others_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxed, "_EXTRA_MODULE", "a_module_that_nobody_has")
    async with open_documents("plain") as documents:
        for name in ("a.docx", "a.pptx", "a.xlsx", "a.epub"):
            assert documents.find_format(name, None, b"PK") is None
            assert documents.find_format(name, None, b"looks like text") is None
            sentence = documents.describe_refusal(name, None)
            assert sentence.startswith("Unsupported file type: application/")
            assert sentence.endswith("the extra holdfast[documents].")
        assert "holdfast[documents]" not in documents.describe_refusal("a.png", "image/png")
        # A file that was stored by a server that has the extra.
        (folder / "upload").write_bytes(build_docx(["text"]))
        with pytest.raises(DocumentUnreadable, match=r"without the extra holdfast\[documents\]"):
            await documents.extract(folder / "upload", "docx")
        assert (await read(documents, folder, build_pdf([["text"]]), "a.pdf")).text == "text\n"


async def test_a_cancelled_extraction_leaves_no_process_and_no_file(folder: Path) -> None:
    (folder / "upload").write_bytes(("<p>text " * 4_000_000).encode())
    async with open_sandbox("plain") as sandbox:
        documents = SandboxedDocuments(sandbox, limits=SandboxLimits(), seconds=WAIT_SECONDS)
        task = asyncio.create_task(documents.extract(folder / "upload", "html"))
        await eventually(lambda: bool(sandbox.processes.list_recent()))
        session = sandbox.processes.list_recent()[0].session
        assert session is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ProcessLookupError):
            os.killpg(session, 0)
    assert list_names(folder) == ["upload"]


async def test_a_machine_that_cannot_start_processes_is_the_operators_problem(folder: Path) -> None:
    class Broken:
        async def run(self, call: SandboxCall) -> SandboxResult:
            raise BackendError("The tool sandbox could not start a process.")

        async def close(self) -> None: ...

    documents = SandboxedDocuments(Broken(), limits=SandboxLimits(), seconds=1)
    with pytest.raises(BackendError):
        await read(documents, folder, build_pdf([["text"]]), "a.pdf")
    # Text needs no process.
    assert (await read(documents, folder, b"text", "a.txt")).text == "text"


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            SandboxResult(status="timed_out", error="…"),
            "Reading the file takes longer than 7 seconds (HOLDFAST_DOCUMENT_SECONDS).",
        ),
        (
            SandboxResult(status="failed", error="…", exceeded_limit="memory"),
            "Reading the file takes more than 9 bytes of memory (HOLDFAST_DOCUMENT_MEMORY_BYTES).",
        ),
        (
            SandboxResult(status="finished", value={"exceeded": "memory"}),
            "Reading the file takes more than 9 bytes of memory (HOLDFAST_DOCUMENT_MEMORY_BYTES).",
        ),
        (
            SandboxResult(status="failed", error="The tool's process was killed by signal 11."),
            "The file cannot be read: the process that reads it has crashed.",
        ),
    ],
)
async def test_a_process_that_ended_before_its_first_text_is_a_sentence(
    folder: Path, result: SandboxResult, sentence: str
) -> None:
    class Ended:
        async def run(self, call: SandboxCall) -> SandboxResult:
            return result

        async def close(self) -> None: ...

    documents = SandboxedDocuments(Ended(), limits=SandboxLimits(memory_bytes=9), seconds=7)
    with pytest.raises(DocumentUnreadable) as raised:
        await read(documents, folder, b"%PDF-1.7", "a.pdf")
    assert str(raised.value) == sentence


async def test_without_documents_every_file_is_refused(tmp_path: Path) -> None:
    assert NO_DOCUMENTS.find_format("a.txt", "text/plain", b"text") is None
    assert NO_DOCUMENTS.describe_refusal("a.txt", None) == (
        "Unsupported file type: unknown (filename: a.txt)."
    )
    with pytest.raises(DocumentUnreadable):
        await NO_DOCUMENTS.extract(tmp_path, "text")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_server_reads_documents_in_its_home_with_the_limits_of_its_settings(
    level: str,
) -> None:
    """No call may open a path in the home."""
    # Not in /tmp, of which an isolated call has its own.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-documents-") as home:
        settings = Settings.read(
            {"HOLDFAST_SANDBOX": level, "HOLDFAST_DOCUMENT_TEXT_BYTES": "1024"}, home=home
        )
        isolation = build_isolation(settings)
        if isolation is not None and (problem := isolation_problem(isolation)) is not None:
            pytest.skip(problem)
        async with AsyncExitStack() as stack:
            documents = assembly.open_documents(settings, stack)
            text = await read(documents, Path(home), build_pdf([["The sea."]]), "a.pdf")
            assert text == Extracted(text="The sea.\n")
            large = f"<p>{'The sea. ' * 10_000}</p>".encode()
            cut = await read(documents, Path(home), large, "a.html")
            assert len(cut.text) == 1024
            assert "HOLDFAST_DOCUMENT_TEXT_BYTES" in (cut.problem or "")
