"""The readable text of an HTML page: without tags, scripts and styles. Runs in the process of the document."""

import re
from typing import BinaryIO, Final

from holdfast.adapters.documents.page_parser import (
    DECLARATION_BYTES,
    Attributes,
    PageParser,
    find_declared_encoding,
)
from holdfast.adapters.documents.plain_text import read_text
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


def read(document: BinaryIO, output: TextOutput) -> None:
    encoding = find_declared_encoding(document.read(DECLARATION_BYTES))
    parser = _TextParser(output)
    # All at once: the parser looks at an element that does not end again with every piece that it is given.
    parser.feed(read_text(document, encoding))
    parser.close()
    parser.finish()


class _TextParser(PageParser):
    def __init__(self, output: TextOutput) -> None:
        super().__init__(output, _HIDDEN, _SPACES)
        self._open_preformatted = 0

    def begin(self, tag: str, attrs: Attributes) -> None:  # noqa: ARG002 - only names count
        self._break(tag)
        if tag == "pre":
            self._count_preformatted(1)
        elif tag == "li":
            self._mark = "- "

    def end(self, tag: str) -> None:
        self._break(tag)
        if tag == "pre":
            self._count_preformatted(-1)

    def _count_preformatted(self, difference: int) -> None:
        self._open_preformatted = max(0, self._open_preformatted + difference)
        self._is_verbatim = self._open_preformatted > 0

    def _break(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._line_ends = 2
        elif tag == "br":
            self._line_ends = min(2, self._line_ends + 1)
        elif tag in _LINES:
            self._line_ends = max(self._line_ends, 1)
        elif tag in _CELLS:
            self._gap = "\t"
