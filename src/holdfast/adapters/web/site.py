"""Getting one page from a site: under the rule for addresses, which each redirect must pass anew.

robots.txt is not asked: an agent reads single pages for a person, as a browser does.
"""

import asyncio
import zlib
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.adapters.web.page_cache import find_age
from holdfast.adapters.web.page_url import check_scheme, follow
from holdfast.adapters.web.user_agent import USER_AGENT
from holdfast.errors import ToolError
from holdfast.ports.outgoing import Outgoing, OutgoingRequest, OutgoingResponse

MAX_BYTES: Final = 10 * 1024 * 1024
MAX_REDIRECTS: Final = 5

# 32: the header says which of them it is.
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_GZIP_BEGINNING: Final = b"\x1f\x8b"
# What follows a part is copied when it ends, and a body may have very many parts: so a piece is small.
_PIECE_BYTES: Final = 4096
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html, application/xhtml+xml, text/plain, text/markdown, application/json, application/pdf, */*;q=0.5",
    "Accept-Encoding": "gzip",
}


class SitePage(Struct, frozen=True, kw_only=True):
    """``url``: where the redirects have led to. ``age_seconds``: how long it may be kept."""

    url: str
    media_type: str
    encoding: str | None
    body: bytes
    age_seconds: float


async def fetch(outgoing: Outgoing, url: str, seconds: float) -> SitePage:
    """ToolError, CallerError or Undeliverable says why there is no page. The time is that of all redirects together; the
    caller limits it."""
    age_seconds = float("inf")
    for _ in range(MAX_REDIRECTS + 1):
        check_scheme(url)
        response = await outgoing.send(
            OutgoingRequest(
                url=url, headers=_HEADERS, timeout_seconds=seconds, max_response_bytes=MAX_BYTES
            )
        )
        age_seconds = min(age_seconds, find_age(dict(response.headers)))
        location = response.headers.get("location")
        if response.status not in _REDIRECTS or not location:
            return await _build_page(url, response, age_seconds)
        url = follow(url, location)
    raise ToolError(f"Error fetching webpage: it has more than {MAX_REDIRECTS} redirects.")


async def _build_page(url: str, response: OutgoingResponse, age_seconds: float) -> SitePage:
    if response.status != 200:
        raise ToolError(f"Error fetching webpage: {_host(url)} answered HTTP {response.status}.")
    media_type, _, parameters = response.headers.get("content-type", "").partition(";")
    return SitePage(
        url=url,
        media_type=media_type.strip().lower(),
        encoding=_find_charset(parameters),
        body=await _decompress(response),
        age_seconds=age_seconds,
    )


def _find_charset(parameters: str) -> str | None:
    for item in parameters.split(";"):
        name, _, value = item.partition("=")
        if name.strip().lower() == "charset":
            return value.strip(" \"'") or None
    return None


async def _decompress(response: OutgoingResponse) -> bytes:
    """Some sites compress whether they are asked to or not."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return response.body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(f"Error fetching webpage: its compression {coding!r} is not supported.")
    return await asyncio.to_thread(_inflate, response.body)


def _inflate(body: bytes) -> bytes:
    """The data of zlib, or of all parts of gzip together."""
    data, position = bytearray(), 0
    decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
    while position < len(body):
        if decoder.eof:
            if not body.startswith(_GZIP_BEGINNING, position):
                break  # padding
            decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
        piece = body[position : position + _PIECE_BYTES]
        try:
            data += decoder.decompress(piece, MAX_BYTES + 1 - len(data))
        except zlib.error as error:
            why = f"it cannot be decompressed ({error})"
            raise ToolError(f"Error fetching webpage: {why}.") from None
        if len(data) > MAX_BYTES:
            raise ToolError(f"Error fetching webpage: it is larger than {MAX_BYTES} bytes.")
        position += len(piece) - len(decoder.unused_data)
    if body and not decoder.eof:
        raise ToolError("Error fetching webpage: its compressed data ends early.")
    return bytes(data)


def _host(url: str) -> str:
    return urlsplit(url).hostname or "the site"
