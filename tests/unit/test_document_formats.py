"""adapters/documents/formats.py: which files can be read, and how."""

import pytest

from holdfast.adapters.documents.formats import describe_refusal, find_format

OFFICE = "application/vnd.openxmlformats-officedocument."

# What memory-v1 §5.3 lists.
_TEXT_EXTENSIONS = """
    .txt .md .markdown .json .jsonl .csv .xml .yaml .yml .toml .ini .cfg .conf .py .js .ts .java .cpp .cxx .c .h .cs
    .php .rb .go .rs .swift .kt .scala .r .m .sql .sh .bash .ps1 .bat .cmd .dockerfile .css .scss .sass .less .vue
    .jsx .tsx .tsv .log
"""
_TEXT_TYPES = """
    text/plain text/markdown text/x-markdown application/json application/jsonl application/x-jsonlines text/csv
    application/xml text/xml text/x-yaml application/toml text/x-ini text/x-conf text/x-python text/javascript
    text/x-typescript text/x-java-source text/x-c++ text/x-objective-c text/css text/x-anything image/svg+xml
    application/ld+json
"""
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize("extension", _TEXT_EXTENSIONS.split())
def test_text_is_known_by_its_extension_also_in_capitals(extension: str) -> None:
    for name in (f"a{extension}", f"A.B{extension.upper()}"):
        for declared in (None, "application/octet-stream", "video/mp2t"):
            assert find_format(name, declared, b"\xff\0") == "text"


@pytest.mark.parametrize("media_type", _TEXT_TYPES.split())
def test_text_is_known_by_its_type_whatever_it_is_called(media_type: str) -> None:
    assert find_format("a.xyz", f"{media_type.upper()}; charset=utf-8", b"\xff\0") == "text"


@pytest.mark.parametrize(
    ("name", "media_type", "found"),
    [
        ("a.pdf", None, "pdf"),
        ("a", "application/pdf", "pdf"),
        ("a.html", None, "html"),
        ("a.htm", "application/octet-stream", "html"),
        ("a.php", "text/html", "html"),
        ("a.docx", None, "docx"),
        ("a.bin", f"{OFFICE}presentationml.presentation", "pptx"),
        ("a.xlsx", "application/zip", "xlsx"),
        ("a.epub", None, "epub"),
        ("a.rtf", "text/rtf", "rtf"),
        ("a.rtf", None, "rtf"),
        # The declared type comes first, but "some text" says least.
        ("a.pdf", "text/html", "html"),
        ("a.pdf", "text/plain", "pdf"),
    ],
)
def test_documents_are_known_by_their_type_or_name(
    name: str, media_type: str | None, found: str
) -> None:
    assert find_format(name, media_type, b"PK\x03\x04\xff") == found


def test_a_pdf_is_known_by_its_first_bytes_whatever_it_is_called() -> None:
    for name, media_type in (("a.txt", "text/plain"), ("a", None), ("a.png", "image/png")):
        assert find_format(name, media_type, b"%PDF-1.7\n\xff\0") == "pdf"


@pytest.mark.parametrize("name", ["Makefile", "LICENSE", "a.unknown", "a.b/c", ".env", "", "日本"])
def test_a_file_of_an_unknown_type_is_text_if_its_bytes_are(name: str) -> None:
    for declared in (None, "application/octet-stream"):
        assert find_format(name, declared, "Größe".encode()) == "text"
        assert find_format(name, declared, "漢".encode()[:2]) == "text"
        assert find_format(name, declared, b"") == "text"
        assert find_format(name, declared, b"a\0b") is None
        assert find_format(name, declared, b"Gr\xf6\xdfe") is None


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.png", None),
        ("a.png", "image/png"),
        ("photo", "image/jpeg"),
        ("a.mp3", None),
        ("a.woff2", "font/woff2"),
        ("a.mp4", "application/octet-stream"),
    ],
)
def test_pictures_and_sounds_are_refused_even_if_their_bytes_could_be_text(
    name: str, media_type: str | None
) -> None:
    assert find_format(name, media_type, b"text") is None
    assert find_format(name, media_type, PNG) is None


def test_a_compressed_text_is_not_text() -> None:
    assert find_format("a.txt.gz", None, b"\x1f\x8b\x08\0") is None
    assert find_format("a.csv.bz2", "application/octet-stream", b"BZh\xff") is None


@pytest.mark.parametrize(
    ("name", "media_type", "shown"),
    [
        ("a.png", None, "image/png"),
        ("a.png", "Image/PNG; q=1", "image/png"),
        ("blob", None, "unknown"),
        ("blob", "application/x-thing", "application/x-thing"),
    ],
)
def test_a_refusal_names_the_type_and_the_file(
    name: str, media_type: str | None, shown: str
) -> None:
    assert describe_refusal(name, media_type) == (
        f"Unsupported file type: {shown} (filename: {name}). Supported types: PDF, text files (.txt, .md), JSON, and "
        "code files (.py, .js, .java, etc.)."
    )
