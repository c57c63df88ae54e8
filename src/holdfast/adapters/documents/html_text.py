"""The readable text of an HTML page: without tags, scripts and styles. Runs in the process of the document."""

import re
from html.parser import HTMLParser
from typing import BinaryIO, Final

from holdfast.adapters.documents.plain_text import find_codec, read_text
from holdfast.adapters.documents.text_output import TextOutput

# What is between their tags is not shown.
_HIDDEN: Final = frozenset(("script", "style", "template", "noscript", "svg", "iframe"))
# A blank line before and after.
_PARAGRAPHS: Final = frozenset(
    (
        *("p", "h1", "h2", "h3", "h4", "h5", "h6", "title", "table", "ul", "ol", "dl", "pre"),
        *("blockquote", "article", "section", "header", "footer", "nav", "aside", "main"),
        *("figure", "form", "hr"),
    )
)
# A line of their own.
_LINES: Final = frozenset(
    ("div", "li", "tr", "dt", "dd", "option", "caption", "figcaption", "address", "body")
)
_CELLS: Final = frozenset(("td", "th"))
_SPACES: Final = re.compile(r"[ \t\n\r\f]+")
# How much of a page may come before it names its encoding (the HTML standard).
_DECLARATION_BYTES: Final = 1024
_DECLARED: Final = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_FLUSH_CHARS: Final = 64 * 1024


def read(document: BinaryIO, output: TextOutput) -> None:
    encoding = find_declared_encoding(document.read(_DECLARATION_BYTES))
    parser = _TextParser(output)
    # All at once: the parser looks at an element that does not end again with every piece that it is given.
    parser.feed(read_text(document, encoding))
    parser.close()
    parser.finish()


def find_declared_encoding(head: bytes) -> str | None:
    """The encoding that the page names at its beginning; None if its bytes tell more."""
    found = _DECLARED.search(head)
    if found is None or found[1].lower().startswith((b"utf-8", b"utf8", b"utf-16", b"utf-32")):
        return None  # its bytes tell
    return find_codec(found[1].decode("ascii"))


class _TextParser(HTMLParser):
    """Collects words, and what goes before the next one: line ends, a tab or a space, a bullet."""

    def __init__(self, output: TextOutput) -> None:
        super().__init__()
        self._output = output
        self._pieces: list[str] = []
        self._chars = 0
        self._hidden_in: str | None = None
        self._hidden_depth = 0
        self._preformatted = 0
        self._line_ends = 0
        self._gap = ""
        self._bullet = ""
        self._is_empty = True

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - only names count
        if self._hidden_in is not None:
            self._hidden_depth += tag == self._hidden_in
        elif tag in _HIDDEN:
            self._hidden_in, self._hidden_depth = tag, 1
        else:
            self._break(tag)
            self._preformatted += tag == "pre"
            if tag == "li":
                self._bullet = "- "

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        # Of the elements that are hidden, those of XHTML may be empty.
        if tag not in _HIDDEN:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden_in is not None:
            self._hidden_depth -= tag == self._hidden_in
            if self._hidden_depth == 0:
                self._hidden_in = None
            return
        self._break(tag)
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)

    def handle_data(self, data: str) -> None:
        if self._hidden_in is not None:
            return
        if self._preformatted:
            self._add(data)
            return
        text = _SPACES.sub(" ", data)
        if text.startswith(" ") and not self._gap:
            self._gap = " "
        if words := text.strip(" "):
            self._add(words)
            self._gap = " " if text.endswith(" ") else ""

    def finish(self) -> None:
        if not self._is_empty:
            self._pieces.append("\n")
        self._flush()

    def _break(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._line_ends = 2
        elif tag == "br":
            self._line_ends = min(2, self._line_ends + 1)
        elif tag in _LINES:
            self._line_ends = max(self._line_ends, 1)
        elif tag in _CELLS:
            self._gap = "\t"

    def _add(self, text: str) -> None:
        if self._line_ends:
            self._gap = "" if self._is_empty else "\n" * self._line_ends
        self._line_ends = 0
        self._pieces.append(("" if self._is_empty else self._gap) + self._bullet + text)
        self._gap = self._bullet = ""
        self._is_empty = False
        self._chars += len(text)
        if self._chars > _FLUSH_CHARS:
            self._flush()

    def _flush(self) -> None:
        self._output.write("".join(self._pieces))
        self._output.flush()
        self._pieces.clear()
        self._chars = 0
