"""Addresses as models and sites write them, in the form in which they are judged and requested. No I/O."""

from typing import Final
from urllib.parse import quote, urljoin, urlsplit

import idna

from holdfast.adapters.web.clean_text import clean_text
from holdfast.errors import ToolError

_PRINTABLE: Final = "".join(chr(code) for code in range(0x21, 0x7F))


def check_scheme(url: str) -> None:
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https"):
        raise ToolError(
            f"Invalid URL scheme '{scheme}'. Only 'http' and 'https' URLs are supported. "
            "Local file paths (file://) and other protocols cannot be fetched."
        )


def quote_url(url: str) -> str:
    """The URL with what people write and a URL does not have, such as spaces and umlauts, encoded. ToolError if it
    cannot be."""
    url = clean_text(url).strip()
    try:
        place = urlsplit(url).netloc
    except ValueError as error:
        raise ToolError(f"Error fetching webpage: it is not a URL ({error}).") from None
    if not place.isascii():
        url = url.replace(place, _encode_place(place), 1)
    return quote(url, safe=_PRINTABLE)


def follow(url: str, location: str) -> str:
    """The URL that the header ``Location`` of a page leads to."""
    raw = location.strip().encode("latin-1")
    try:
        target = quote_url(raw.decode())
    except UnicodeDecodeError:
        target = quote(raw, safe=_PRINTABLE)
    try:
        return urljoin(url, target)
    except ValueError as error:
        raise ToolError(f"Error fetching webpage: it leads to no URL ({error}).") from None


def _encode_place(place: str) -> str:
    """Host and port. An address of IPv6 has no umlauts, so the first colon ends the host."""
    owner, at, rest = place.rpartition("@")
    host, colon, port = rest.partition(":")
    if host.isascii():
        return place
    try:
        name = idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ToolError(
            f"Error fetching webpage: {host!r} is not the name of a host ({error})."
        ) from None
    return f"{owner}{at}{name}{colon}{port}"
