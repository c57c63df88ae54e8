"""Parsing an HTML page: what of it is shown, and how its words are put together. Runs in the process of the document.

What its elements become is for `html_text.py` and `markdown_text.py`. Nothing here depends on how deeply they are nested.
"""

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Final

from holdfast.adapters.documents.plain_text import find_codec
from holdfast.adapters.documents.text_output import TextOutput

Attributes = Sequence[tuple[str, str | None]]

DECLARATION_BYTES: Final = 1024
"""How much of a page may come before it names its encoding (the HTML standard)."""

_DECLARED: Final = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
# Only their own end tag ends them: browsers do not look for elements in them, or show none.
_OPAQUE: Final = frozenset(("script", "style", "template", "noscript", "iframe", "textarea"))
# They are never within one of their own kind: a second beginning means that the first has ended.
_NOT_NESTED: Final = frozenset(("button", "select", "noscript", "iframe", "textarea"))
# Where a page has these, its menus are over.
_CONTENT: Final = frozenset(("main", "article"))
# Their ends are often written where nothing began: paragraphs end by themselves, the others have no end.
_WITHOUT_END: Final = frozenset(
    (
        *("p", "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"),
        *("source", "track", "wbr"),
    )
)
_FLUSH_CHARS: Final = 64 * 1024


def find_declared_encoding(head: bytes) -> str | None:
    """The encoding that the page names at its beginning; None if its bytes tell more."""
    found = _DECLARED.search(head[:DECLARATION_BYTES])
    if found is None or found[1].lower().startswith((b"utf-8", b"utf8", b"utf-16", b"utf-32")):
        return None  # its bytes tell
    return find_codec(found[1].decode("ascii"))


class HiddenPart:
    """Whether a tag is within an element that is not shown. Such an element may lack its end tag: then it ends where
    browsers end it, or else the rest of the page would be lost."""

    def __init__(self, tags: frozenset[str]) -> None:
        self._tags = tags
        self._open_outside: Counter[str] = Counter()
        self._open_inside: Counter[str] = Counter()
        # The element that is not shown.
        self.tag: str | None = None

    def begins_or_holds(self, tag: str) -> bool:
        """Whether an element that begins here is not shown."""
        if self.tag is not None and tag in _CONTENT and self.tag not in _OPAQUE:
            self.tag = None
        if self.tag is not None:
            if tag != self.tag or tag not in _NOT_NESTED:
                self._open_inside[tag] += 1
            return True
        if tag in self._tags:
            self.tag, self._open_inside = tag, Counter((tag,))
            return True
        if tag not in _WITHOUT_END:
            self._open_outside[tag] += 1
        return False

    def ends_or_holds(self, tag: str) -> bool:
        """Whether an element that ends here was not shown."""
        if self.tag is None:
            self._close_outside(tag)
            return False
        if self._open_inside[tag]:
            self._open_inside[tag] -= 1
            if tag == self.tag and not self._open_inside[tag]:
                self.tag = None
            return True
        if self.tag in _OPAQUE or not (self._open_outside[tag] or tag == "body"):
            return True
        self._close_outside(tag)
        self.tag = None
        return False

    def _close_outside(self, tag: str) -> None:
        if self._open_outside[tag]:
            self._open_outside[tag] -= 1


class PageParser(HTMLParser):
    """Collects words, and what goes before the next one: line ends, a space, a mark such as that of a list. Subclasses say
    what elements become, by ``begin`` and ``end``."""

    def __init__(
        self, output: TextOutput, hidden_tags: frozenset[str], spaces: re.Pattern[str]
    ) -> None:
        super().__init__()
        self._output = output
        self._hidden_tags = hidden_tags
        self._hidden = HiddenPart(hidden_tags)
        self._spaces = spaces
        self._pieces: list[str] = []
        self._chars = 0
        self._is_verbatim = False
        self._line_ends = 0
        self._gap = ""
        self._mark = ""
        self._is_empty = True

    @property
    def unended_tag(self) -> str | None:
        """The element within which the page ends, and which is not shown."""
        return self._hidden.tag

    def begin(self, tag: str, attrs: Attributes) -> None:
        raise NotImplementedError

    def end(self, tag: str) -> None:
        raise NotImplementedError

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if not self._hidden.begins_or_holds(tag):
            self.begin(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        # Of the elements that are hidden, those of XHTML may be empty.
        if tag not in self._hidden_tags:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self._hidden.ends_or_holds(tag):
            self.end(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden.tag is not None:
            return
        if self._is_verbatim:
            self._add(data)
            return
        text = self._spaces.sub(" ", data)
        if text.startswith(" ") and not self._gap:
            self._gap = " "
        if words := text.strip(" "):
            self._add(words)
            self._gap = " " if text.endswith(" ") else ""

    def finish(self) -> None:
        if not self._is_empty:
            self._pieces.append("\n")
        self._flush()

    def _add(self, text: str) -> None:
        if self._line_ends:
            self._gap = "" if self._is_empty else "\n" * self._line_ends
        self._line_ends = 0
        gap = "" if self._is_empty else self._gap
        self._pieces.append(f"{gap}{self._take_mark()}{text}")
        self._gap = ""
        self._is_empty = False
        self._chars += len(text)
        if self._chars > _FLUSH_CHARS:
            self._flush()

    def _take_mark(self) -> str:
        """What goes directly before the next words, once."""
        mark, self._mark = self._mark, ""
        return mark

    def _flush(self) -> None:
        self._output.write("".join(self._pieces))
        self._output.flush()
        self._pieces.clear()
        self._chars = 0
