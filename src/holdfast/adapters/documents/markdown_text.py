"""The text of a page of the web as Markdown: headings, links, lists, tables and code. Runs in the process of the document.

The page may be hostile, so nothing here depends on how deeply its elements are nested.
"""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import BinaryIO, Final
from urllib.parse import urljoin, urlsplit

from holdfast.adapters.documents.html_text import find_declared_encoding
from holdfast.adapters.documents.plain_text import choose_encoding, read_text
from holdfast.adapters.documents.text_output import TextOutput

# What is between their tags is not read: code, and what leads to other pages.
_HIDDEN: Final = frozenset(
    (
        *("script", "style", "template", "noscript", "svg", "iframe", "object", "canvas"),
        *("nav", "button", "select", "textarea", "dialog"),
    )
)
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)} | {"title": "# "}
# A blank line before and after.
_PARAGRAPHS: Final = frozenset(
    (
        *("p", "table", "dl", "blockquote", "article", "section", "header", "footer", "aside"),
        *("main", "figure", "form", "hr", *_HEADINGS),
    )
)
# A line of their own.
_LINES: Final = frozenset(
    ("div", "tr", "dt", "dd", "option", "caption", "figcaption", "address", "body", "summary")
)
_LISTS: Final = ("ul", "ol", "menu")
_CELLS: Final = frozenset(("td", "th"))
_SPACES: Final = re.compile(r"[ \t\n\r\f\xa0]+")
_SCHEMES: Final = ("http", "https", "mailto")
_MAX_INDENT: Final = 8
_MAX_LISTS: Final = 1000
_MAX_URL_CHARS: Final = 2048
_DECLARATION_BYTES: Final = 1024
_FLUSH_CHARS: Final = 64 * 1024

Attributes = Sequence[tuple[str, str | None]]


def read(document: BinaryIO, output: TextOutput, encoding: str | None, url: str) -> str | None:
    data = document.read()
    declared = find_declared_encoding(data[:_DECLARATION_BYTES])
    parser = _MarkdownParser(output, url)
    # All at once: the parser looks at an element that does not end again with every piece that it is given.
    parser.feed(read_text(document, choose_encoding(data, encoding, declared)))
    parser.close()
    parser.finish()
    return None if output.has_text else "The page has no text: it may be made by scripts."


class _MarkdownParser(HTMLParser):
    """Collects words, and what goes before the next one: line ends, a space, marks such as that of a heading."""

    def __init__(self, output: TextOutput, url: str) -> None:
        super().__init__()
        self._output = output
        self._base = url
        self._pieces: list[str] = []
        self._chars = 0
        self._hidden_in: str | None = None
        self._hidden_depth = 0
        self._in_code_block = False
        # For each open list the number of its next item; None: its items have no numbers.
        self._lists: list[int | None] = []
        self._line_ends = 0
        self._gap = ""
        self._mark = ""
        self._is_empty = True
        # The address of the link that is open, and whether its text has begun.
        self._link: str | None = None
        self._is_link_begun = False

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if self._hidden_in is not None:
            self._hidden_depth += tag == self._hidden_in
        elif tag in _HIDDEN:
            self._hidden_in, self._hidden_depth = tag, 1
        elif tag == "base":
            self._base = self._resolve(dict(attrs).get("href")) or self._base
        elif tag == "a":
            self._end_link()
            self._link = self._resolve(dict(attrs).get("href"))
        elif tag == "img":
            self._add_image(dict(attrs))
        elif tag == "pre":
            self._begin_code_block()
        else:
            self._begin_block(tag)

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        # Of the elements that are hidden, those of XHTML may be empty.
        if tag not in _HIDDEN:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden_in is not None:
            self._hidden_depth -= tag == self._hidden_in
            if self._hidden_depth == 0:
                self._hidden_in = None
        elif tag == "a":
            self._end_link()
        elif tag == "pre":
            self._end_code_block()
        else:
            self._end_block(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden_in is not None:
            return
        if self._in_code_block:
            self._add(data)
            return
        text = _SPACES.sub(" ", data)
        if text.startswith(" ") and not self._gap:
            self._gap = " "
        if words := text.strip(" "):
            self._add(words)
            self._gap = " " if text.endswith(" ") else ""

    def finish(self) -> None:
        self._end_link()
        self._end_code_block()
        if not self._is_empty:
            self._pieces.append("\n")
        self._flush()

    def _begin_block(self, tag: str) -> None:
        if tag == "li":
            self._break(1)
            self._mark = self._next_bullet()
        elif tag in _LISTS:
            # A list within an item goes on at the next line.
            self._break(1 if self._lists else 2)
            if len(self._lists) < _MAX_LISTS:
                self._lists.append(1 if tag == "ol" else None)
        elif tag == "br":
            self._break(min(2, self._line_ends + 1))
        elif tag in _CELLS:
            self._gap = " | "
        else:
            self._break_around(tag)
            self._mark = _HEADINGS.get(tag, self._mark)

    def _end_block(self, tag: str) -> None:
        if tag in _LISTS:
            if self._lists:
                self._lists.pop()
            self._break(1 if self._lists else 2)
        elif tag == "li":
            self._break(1)
        elif tag not in _CELLS and tag != "br":
            self._break_around(tag)
            if tag in _HEADINGS:
                self._mark = ""

    def _break_around(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            # Paragraphs of an item stay with it.
            self._break(1 if self._lists and tag == "p" else 2)
        elif tag in _LINES:
            self._break(1)

    def _break(self, line_ends: int) -> None:
        if self._is_link_begun:
            # The text of a link is one line.
            self._gap = " "
        else:
            self._line_ends = max(self._line_ends, line_ends)

    def _next_bullet(self) -> str:
        indent = "  " * min(max(len(self._lists) - 1, 0), _MAX_INDENT)
        if not self._lists or (number := self._lists[-1]) is None:
            return f"{indent}- "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _begin_code_block(self) -> None:
        self._end_link()
        if not self._in_code_block:
            self._break(2)
            self._add("```\n")
            self._in_code_block = True

    def _end_code_block(self) -> None:
        if self._in_code_block:
            self._in_code_block = False
            has_line_end = bool(self._pieces) and self._pieces[-1].endswith("\n")
            self._pieces.append("```" if has_line_end else "\n```")
            self._break(2)

    def _add_image(self, attributes: dict[str, str | None]) -> None:
        words = _SPACES.sub(" ", attributes.get("alt") or "").strip(" ")
        source = self._resolve(attributes.get("src"))
        if words and not self._in_code_block:
            self._add(f"![{words}]({source})" if source else words)

    def _end_link(self) -> None:
        if self._is_link_begun:
            self._pieces.append(f"]({self._link})")
        self._link, self._is_link_begun = None, False

    def _resolve(self, href: str | None) -> str | None:
        """The whole address; None for scripts, data, places in the same page, and what is no address."""
        if not href or href.startswith("#"):
            return None
        try:
            address = urljoin(self._base, href.strip())
            scheme = urlsplit(address).scheme
        except ValueError:
            return None
        if scheme not in _SCHEMES or len(address) > _MAX_URL_CHARS:
            return None
        return _SPACES.sub("%20", address).replace("(", "%28").replace(")", "%29")

    def _add(self, text: str) -> None:
        if self._line_ends:
            self._gap = "" if self._is_empty else "\n" * self._line_ends
        self._line_ends = 0
        before = ("" if self._is_empty else self._gap) + self._mark
        if self._link is not None and not self._is_link_begun and not self._in_code_block:
            before, self._is_link_begun = f"{before}[", True
        self._pieces.append(before + text)
        self._gap = self._mark = ""
        self._is_empty = False
        self._chars += len(text)
        if self._chars > _FLUSH_CHARS:
            self._flush()

    def _flush(self) -> None:
        self._output.write("".join(self._pieces))
        self._output.flush()
        self._pieces.clear()
        self._chars = 0
