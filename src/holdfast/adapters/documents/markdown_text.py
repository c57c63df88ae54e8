"""The text of a page of the web as Markdown: headings, links, lists, tables and code. Runs in the process of the document.

The page may be hostile, so nothing here depends on how deeply its elements are nested.
"""

import re
from typing import BinaryIO, Final
from urllib.parse import urljoin, urlsplit

from holdfast.adapters.documents.page_parser import (
    Attributes,
    PageParser,
    find_declared_encoding,
)
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


def read(document: BinaryIO, output: TextOutput, encoding: str | None, url: str) -> str | None:
    data = document.read()
    declared = find_declared_encoding(data)
    parser = _MarkdownParser(output, url)
    # All at once: the parser looks at an element that does not end again with every piece that it is given.
    parser.feed(read_text(document, choose_encoding(data, encoding, declared)))
    parser.close()
    parser.finish()
    if (tag := parser.unended_tag) is not None:
        return f"The page does not end its element <{tag}>, whose text is not shown."
    return None if output.has_text else "The page has no text: it may be made by scripts."


class _MarkdownParser(PageParser):
    def __init__(self, output: TextOutput, url: str) -> None:
        super().__init__(output, _HIDDEN, _SPACES)
        self._base = url
        # For each open list the number of its next item; None: its items have no numbers.
        self._lists: list[int | None] = []
        # The address of the link that is open, and whether its text has begun.
        self._link: str | None = None
        self._is_link_begun = False

    def begin(self, tag: str, attrs: Attributes) -> None:
        if tag == "base":
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

    def end(self, tag: str) -> None:
        if tag == "a":
            self._end_link()
        elif tag == "pre":
            self._end_code_block()
        else:
            self._end_block(tag)

    def finish(self) -> None:
        self._end_link()
        self._end_code_block()
        super().finish()

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
        if not self._is_verbatim:
            self._break(2)
            self._add("```\n")
            self._is_verbatim = True

    def _end_code_block(self) -> None:
        if self._is_verbatim:
            self._is_verbatim = False
            has_line_end = bool(self._pieces) and self._pieces[-1].endswith("\n")
            self._pieces.append("```" if has_line_end else "\n```")
            self._break(2)

    def _add_image(self, attributes: dict[str, str | None]) -> None:
        words = _SPACES.sub(" ", attributes.get("alt") or "").strip(" ")
        source = self._resolve(attributes.get("src"))
        if words and not self._is_verbatim:
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

    def _take_mark(self) -> str:
        mark = super()._take_mark()
        if self._link is None or self._is_link_begun or self._is_verbatim:
            return mark
        self._is_link_begun = True
        return f"{mark}["
