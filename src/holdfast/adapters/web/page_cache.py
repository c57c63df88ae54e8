"""Pages that were fetched a moment ago, in memory: an agent that reads a page twice asks its site once."""

from collections import OrderedDict
from typing import Final

from msgspec import Struct

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_AGE_SECONDS: Final = 300.0

_BYTES_PER_CHAR: Final = 4


class _Page(Struct, frozen=True):
    text: str
    ends_at_seconds: float

    @property
    def size(self) -> int:
        return _BYTES_PER_CHAR * len(self.text)


class PageCache:
    """The text of a page by organization and URL. The pages that were used least lately make room for others."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._pages: OrderedDict[tuple[str, str], _Page] = OrderedDict()

    def find(self, organization_id: str, url: str, now_seconds: float) -> str | None:
        page = self._pages.get((organization_id, url))
        if page is None:
            return None
        if page.ends_at_seconds <= now_seconds:
            self._remove((organization_id, url))
            return None
        self._pages.move_to_end((organization_id, url))
        return page.text

    def put(
        self, organization_id: str, url: str, text: str, now_seconds: float, age_seconds: float
    ) -> None:
        key, page = (organization_id, url), _Page(text, now_seconds + age_seconds)
        if page.size > self._max_bytes or age_seconds <= 0:
            return
        if key in self._pages:
            self._remove(key)
        while self._bytes + page.size > self._max_bytes:
            self._remove(next(iter(self._pages)))
        self._pages[key] = page
        self._bytes += page.size

    def _remove(self, key: tuple[str, str]) -> None:
        self._bytes -= self._pages.pop(key).size


def find_age(headers: dict[str, str]) -> float:
    """How long the answer of a site may be kept, in seconds; 0: not at all."""
    directives = {
        name.strip().lower(): value.strip(' "')
        for item in headers.get("cache-control", "").split(",")
        for name, _, value in [item.partition("=")]
    }
    if directives.keys() & {"no-store", "no-cache", "private"} or "set-cookie" in headers:
        return 0.0
    if headers.get("vary", "").strip() == "*":
        return 0.0
    age = directives.get("max-age", "")
    # Not every digit of Unicode is one of a number.
    is_number = age.isascii() and age.isdecimal()
    # Longer numbers than that are forever.
    return min(float(age[:9]), MAX_AGE_SECONDS) if is_number else MAX_AGE_SECONDS
