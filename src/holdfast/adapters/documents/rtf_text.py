"""The text of a file in Rich Text Format. Runs in the process of the document."""

import re
from typing import BinaryIO, Final

from holdfast.adapters.documents.text_output import TextOutput
from holdfast.errors import DocumentUnreadable

# A control word with its number, a byte in hexadecimal, another control symbol, a brace, line ends (which mean nothing),
# text.
_TOKEN: Final = re.compile(
    r"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|[\r\n]+|([^\\{}\r\n]+)",
    re.DOTALL,
)
_CHARACTERS: Final = {
    **dict.fromkeys(("par", "line", "sect", "page", "row"), "\n"),
    **dict.fromkeys(("tab", "cell"), "\t"),
    "emdash": "\N{EM DASH}",
    "endash": "\N{EN DASH}",
    "bullet": "\N{BULLET}",
    "lquote": "\N{LEFT SINGLE QUOTATION MARK}",
    "rquote": "\N{RIGHT SINGLE QUOTATION MARK}",
    "ldblquote": "\N{LEFT DOUBLE QUOTATION MARK}",
    "rdblquote": "\N{RIGHT DOUBLE QUOTATION MARK}",
    "~": "\N{NO-BREAK SPACE}",
    "_": "\N{NON-BREAKING HYPHEN}",
    **{escaped: escaped for escaped in "\\{}"},
    **dict.fromkeys("\r\n", "\n"),
}
# Groups whose text is not that of the document. Those that begin with \* are for programs that know them.
_SKIPPED_GROUPS: Final = frozenset(
    ("fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "themedata", "datastore", "*")
)
_DEFAULT_CODE_PAGE: Final = "cp1252"
_MAX_CODE_UNIT: Final = 0x10000


def read(document: BinaryIO, output: TextOutput) -> None:
    source = document.read().decode("latin-1")
    if not source.startswith("{\\rtf"):
        raise DocumentUnreadable("The file is not in Rich Text Format, although its name says so.")
    reader = _Reader()
    reader.read(source)
    # A character beyond the first 65,536 is written as two halves.
    text = "".join(reader.pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    output.write_section(text)


class _Reader:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._code_page = _DEFAULT_CODE_PAGE
        # For each open group whether its text is left out, and how many characters follow a Unicode character for programs
        # that do not know it.
        self._groups: list[tuple[bool, int]] = [(False, 1)]
        self._to_skip = 0

    def read(self, source: str) -> None:
        position = 0
        # A last character that begins nothing (a lone backslash) is no token.
        while (found := _TOKEN.match(source, position)) is not None:
            position = found.end()
            word, number, byte, symbol, brace, text = found.groups()
            if brace is not None:
                self._change_group(brace)
            elif word == "bin":
                position += max(0, int(number or 0))
            elif word is not None:
                self._apply_word(word, None if number is None else int(number))
            elif byte is not None:
                self._add(bytes.fromhex(byte).decode(self._code_page, "replace"))
            elif symbol is not None:
                self._apply_word(symbol, None)
            elif text is not None:
                self._add(text.encode("latin-1").decode(self._code_page, "replace"))

    def _change_group(self, brace: str) -> None:
        if brace == "{":
            self._groups.append(self._groups[-1])
        elif len(self._groups) > 1:
            self._groups.pop()
        self._to_skip = 0

    def _apply_word(self, word: str, number: int | None) -> None:
        is_skipped, fallback_chars = self._groups[-1]
        if word in _SKIPPED_GROUPS:
            self._groups[-1] = (True, fallback_chars)
        elif word == "uc" and number is not None:
            self._groups[-1] = (is_skipped, max(0, number))
        elif word == "u" and number is not None:
            self._to_skip = 0
            self._add(chr(number % _MAX_CODE_UNIT))
            self._to_skip = fallback_chars
        elif word == "ansicpg" and number is not None:
            self._set_code_page(number)
        elif word in _CHARACTERS:
            self._add(_CHARACTERS[word])

    def _set_code_page(self, number: int) -> None:
        try:
            b"".decode(f"cp{number}")
        except LookupError:
            return
        self._code_page = f"cp{number}"

    def _add(self, text: str) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(text))
            self._to_skip -= skipped
            text = text[skipped:]
        if not self._groups[-1][0]:
            self.pieces.append(text)
