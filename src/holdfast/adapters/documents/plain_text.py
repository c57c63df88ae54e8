"""Decoding text: which encoding a file has, and its characters.

Done piece by piece, so that a large file does not hold up other threads of the server: decoding keeps Python's lock.
"""

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO, Final

from holdfast.errors import DocumentUnreadable

_UTF8: Final = "utf-8"
# For text that is not UTF-8: Windows-1252, in which nearly every byte is a character.
_FALLBACK: Final = "cp1252"
# The encodings that browsers know, by Python's names, and their relatives. Of the others some decode to what is no text
# (halves of surrogate pairs), or to what nobody sees who looks at the page. Who says ASCII or ISO 8859-1 means Windows-1252
# or UTF-8, so those are not among them.
_DECLARABLE: Final = frozenset(
    (
        *(f"iso8859-{part}" for part in (*range(2, 12), *range(13, 17))),
        *(f"cp{number}" for number in range(1250, 1259)),
        *("cp866", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp874", "tis-620"),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "cp950", "euc_kr", "cp949"),
        *("euc_jp", "iso2022_jp", "shift_jis", "cp932"),
    )
)
_PIECE_BYTES: Final = 1024 * 1024
# How much is looked at to tell the encoding.
_HEAD_BYTES: Final = 64 * 1024
# The one of UTF-16 is the beginning of the one of UTF-32.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Control characters that text does not have; white space, backspace, escape (colours of terminals) and ^Z (end of a file
# in DOS) are found in text.
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b\x1a"))
# Compressed data has one in nine bytes, programs have more.
_MAX_CONTROL_SHARE: Final = 1 / 20
_MAX_FEW_CONTROLS: Final = 4


def read_text(file: BinaryIO, encoding: str | None = None) -> str:
    """The text of the file, from its beginning. The encoding is found out if it is not given. Line ends become ``\\n``, and
    NUL is dropped. DocumentUnreadable if the file is not text."""
    if encoding is None:
        encoding = find_encoding(_read_head(file))
    if encoding == _UTF8:
        try:
            return "".join(_decode_utf8(file))
        except UnicodeDecodeError:
            encoding = _FALLBACK
    return "".join(_decode(file, encoding))


def find_encoding(head: bytes) -> str:
    """The encoding of a text that begins with these bytes. ``utf-8``: unless it turns out later that it cannot be."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    if (unmarked := _find_utf16(head)) is not None:
        return unmarked
    if _is_binary(head):
        raise DocumentUnreadable(
            "The file is not text, although its name or type says so: it has the bytes of a picture, a program or "
            "compressed data."
        )
    return _UTF8


def find_codec(name: str) -> str | None:
    """Python's name of an encoding that was declared; None if no page has it, or if the bytes tell more."""
    try:
        codec = codecs.lookup(name)
    # Unknown, or no name at all.
    except (LookupError, TypeError, ValueError):
        return None
    return codec.name if codec.name in _DECLARABLE else None


def choose_encoding(data: bytes, *declared: str | None) -> str | None:
    """The first of the declared encodings that can be meant; None if the bytes tell more."""
    found = next((codec for name in declared if name and (codec := find_codec(name))), None)
    if found is None or any(data.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS):
        return None
    return None if not data.isascii() and _is_utf8(data) else found


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode(_UTF8)
    except UnicodeDecodeError:
        return False
    return True


def _read_head(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(_HEAD_BYTES)


def _find_utf16(head: bytes) -> str | None:
    """UTF-16 without a mark: of Western text every second byte is NUL, before or after the one that says something."""
    half = len(head) // 2
    high, low = head[0::2].count(0), head[1::2].count(0)
    if low > half // 2 and high * 10 < low:
        return "utf-16-le"
    if high > half // 2 and low * 10 < high:
        return "utf-16-be"
    return None


def _is_binary(head: bytes) -> bool:
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls > max(_MAX_FEW_CONTROLS, len(head) * _MAX_CONTROL_SHARE)


def _decode_utf8(file: BinaryIO) -> Iterator[str]:
    """UnicodeDecodeError if it is not UTF-8. A last character that is cut, in a text that has others of several bytes, only
    means that the file is cut."""
    decoder = codecs.getincrementaldecoder(_UTF8)()
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    is_ascii = True
    for piece in _read_pieces(file):
        text = decoder.decode(piece)
        is_ascii = is_ascii and text.isascii()
        yield line_ends.decode(text).replace("\0", "")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        if is_ascii:
            raise
        yield "\N{REPLACEMENT CHARACTER}"
    yield line_ends.decode("", final=True)


def _decode(file: BinaryIO, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    line_ends = io.IncrementalNewlineDecoder(decoder, translate=True)
    for piece in _read_pieces(file):
        yield line_ends.decode(piece).replace("\0", "")
    yield line_ends.decode(b"", final=True)


def _read_pieces(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(_PIECE_BYTES):
        yield piece
