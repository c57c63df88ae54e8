"""Pictures that a caller gives by their address. They are fetched once, when they are sent: what the model was
shown is then part of the history, whatever becomes of the address."""

from base64 import b64encode
from typing import Final
from urllib.parse import urljoin

from holdfast.core import pictures
from holdfast.core.messages import Image
from holdfast.errors import AddressForbidden, InvalidArgument, Undeliverable
from holdfast.ports.house import House
from holdfast.ports.outgoing import Letter, Reply

# Per try; a server that does not answer is asked once more.
FETCH_SECONDS = 5.0
MAX_PICTURE_BYTES = 10 * 1024 * 1024
# Of one request, and of them fetched at once.
MAX_PICTURES = 20
# All of one request: what a body of 32 MiB holds of pictures that come by value.
MAX_TOTAL_BYTES = 24 * 1024 * 1024
FETCHED_AT_ONCE = 4
# Each address is judged as the first was.
MAX_REDIRECTS = 3

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OK: Final = 200


async def fetch(house: House, url: str) -> Image:
    """The picture at the address. InvalidArgument, which says why, if there is none."""
    try:
        reply = await _followed(house, url)
    except (Undeliverable, AddressForbidden) as error:
        raise _failed(url, str(error)) from error
    if reply.status != _OK:
        raise _failed(url, f"the server answered with status {reply.status}")
    kind = pictures.kind(reply.body)
    if kind is None:
        raise _failed(url, pictures.NO_PICTURE)
    return Image(kind, b64encode(reply.body).decode("ascii"))


async def _followed(house: House, url: str) -> Reply:
    for _ in range(MAX_REDIRECTS + 1):
        reply = await _got(house, url)
        if reply.status not in _REDIRECTS or "location" not in reply.headers:
            return reply
        url = urljoin(url, reply.headers["location"])
    raise Undeliverable(f"it is redirected more than {MAX_REDIRECTS} times")


async def _got(house: House, url: str) -> Reply:
    letter = Letter(url=url, timeout_seconds=FETCH_SECONDS, max_reply_bytes=MAX_PICTURE_BYTES)
    try:
        return await house.outgoing.send(letter)
    except Undeliverable:
        return await house.outgoing.send(letter)


def _failed(url: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"Failed to fetch image from {url[:200]}: {why.rstrip('.')}.")
