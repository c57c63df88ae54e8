"""Which files can be read, and how: by their declared type, their name, and at last their bytes (wire-v1 §2.12).

A format is a short name that is stored with a file. How each is read is in the modules beside this one.
"""

import codecs
import mimetypes
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

TEXT: Final = "text"
HTML: Final = "html"
PDF: Final = "pdf"
RTF: Final = "rtf"
DOCX: Final = "docx"
PPTX: Final = "pptx"
XLSX: Final = "xlsx"
EPUB: Final = "epub"

NEEDING_EXTRA: Final = (DOCX, PPTX, XLSX, EPUB)
"""Formats for which the extra ``documents`` must be installed."""

_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_BY_TYPE: Final[Mapping[str, str]] = {
    "application/pdf": PDF,
    "application/x-pdf": PDF,
    "text/html": HTML,
    "application/xhtml+xml": HTML,
    "application/rtf": RTF,
    "text/rtf": RTF,
    f"{_OFFICE}wordprocessingml.document": DOCX,
    f"{_OFFICE}presentationml.presentation": PPTX,
    f"{_OFFICE}spreadsheetml.sheet": XLSX,
    "application/epub+zip": EPUB,
    **dict.fromkeys(
        (
            *("application/json", "application/jsonl", "application/x-jsonlines"),
            *("application/x-ndjson", "application/xml", "application/toml", "application/yaml"),
            *("application/x-yaml", "application/sql", "application/javascript"),
            *("application/x-javascript", "application/typescript", "application/x-sh"),
            *("application/x-httpd-php", "application/x-python", "application/x-tex"),
        ),
        TEXT,
    ),
}
_BY_EXTENSION: Final[Mapping[str, str]] = {
    ".pdf": PDF,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".rtf": RTF,
    ".docx": DOCX,
    ".pptx": PPTX,
    ".xlsx": XLSX,
    ".epub": EPUB,
    **dict.fromkeys(
        (
            *(".txt", ".md", ".markdown", ".log", ".tsv", ".csv", ".json", ".jsonl", ".xml"),
            *(".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".py", ".js", ".ts", ".java"),
            *(".cpp", ".cxx", ".c", ".h", ".cs", ".php", ".rb", ".go", ".rs", ".swift", ".kt"),
            *(".scala", ".r", ".m", ".sql", ".sh", ".bash", ".ps1", ".bat", ".cmd"),
            *(".dockerfile", ".css", ".scss", ".sass", ".less", ".vue", ".jsx", ".tsx"),
        ),
        TEXT,
    ),
}
# Text whatever comes before them: SVG pictures, feeds, linked data.
_TEXT_SUFFIXES: Final = ("+xml", "+json")
# A file that says to be one of these is not read as text, even if its bytes could be.
_NEVER_TEXT: Final = ("image", "audio", "video", "font")
# A PDF is recognised whatever it is called: no text begins so.
_PDF_BEGINNING: Final = b"%PDF-"

_SUPPORTED: Final = (
    "PDF, text files (.txt, .md), JSON, and code files (.py, .js, .java, etc.)"  # V1's words
)
_EXTRA_HINT: Final = (
    "Word, PowerPoint, Excel and EPUB files can be read if the server is installed with the extra "
    "holdfast[documents]."
)


def find_format(
    name: str, media_type: str | None, head: bytes, *, has_extra: bool = True
) -> str | None:
    """How such a file is read; None if it cannot be. ``has_extra``: whether the extra ``documents`` is installed."""
    if head.startswith(_PDF_BEGINNING):
        return PDF
    found = _find_named_format(name, media_type)
    if found is not None:
        return found if has_extra or found not in NEEDING_EXTRA else None
    types = _candidate_types(name, media_type)
    if any(_is_text_type(each) for each in types):
        return TEXT
    if any(each.split("/", 1)[0] in _NEVER_TEXT for each in types):
        return None
    return TEXT if _is_utf8(head) else None


def describe_refusal(name: str, media_type: str | None, *, has_extra: bool = True) -> str:
    shown = next(iter(_candidate_types(name, media_type)), "unknown")
    refusal = f"Unsupported file type: {shown} (filename: {name}). Supported types: {_SUPPORTED}."
    needs_extra = _find_named_format(name, media_type) in NEEDING_EXTRA
    return f"{refusal} {_EXTRA_HINT}" if needs_extra and not has_extra else refusal


def _find_named_format(name: str, media_type: str | None) -> str | None:
    """The format by the declared type, else by the type that the name suggests, else by the extension."""
    for each in _candidate_types(name, media_type):
        if each in _BY_TYPE:
            return _BY_TYPE[each]
    return _BY_EXTENSION.get(PurePath(name).suffix.lower())


def _candidate_types(name: str, media_type: str | None) -> list[str]:
    declared = (media_type or "").partition(";")[0].strip().lower()
    guessed, compression = mimetypes.guess_type(PurePath(name).name)
    return [each for each in (declared, None if compression else guessed) if each]


def _is_text_type(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(_TEXT_SUFFIXES)


def _is_utf8(head: bytes) -> bool:
    """Whether these bytes may be the beginning of UTF-8 text. Its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head
