"""Fetching images that a caller gives by URL. An image is fetched once, when it is sent, and stored in the history,
so that the history does not depend on the URL any more."""

from base64 import b64encode
from typing import Final
from urllib.parse import urljoin

from holdfast.core import images
from holdfast.core.messages import Image
from holdfast.errors import AddressForbidden, InvalidArgument, Undeliverable
from holdfast.ports.outgoing import OutgoingRequest, OutgoingResponse
from holdfast.ports.services import Services

# Per attempt. A failed attempt is repeated once.
FETCH_SECONDS = 5.0
MAX_IMAGE_BYTES = 10 * 1024 * 1024
# Per request.
MAX_IMAGES = 20
# All images of one request together: about what a body of 32 MiB can hold of base64 images.
MAX_TOTAL_BYTES = 24 * 1024 * 1024
MAX_CONCURRENT_FETCHES = 4
# The target of each redirect is checked like the first URL.
MAX_REDIRECTS = 3

_REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_OK: Final = 200


async def fetch(services: Services, url: str) -> Image:
    """Fetch the image at this URL. Raises InvalidArgument with the reason if that fails."""
    try:
        reply = await _follow_redirects(services, url)
    except (Undeliverable, AddressForbidden) as error:
        raise _fetch_error(url, str(error)) from error
    if reply.status != _OK:
        raise _fetch_error(url, f"the server answered with status {reply.status}")
    kind = images.detect_media_type(reply.body)
    if kind is None:
        raise _fetch_error(url, images.NOT_AN_IMAGE)
    return Image(kind, b64encode(reply.body).decode("ascii"))


async def _follow_redirects(services: Services, url: str) -> OutgoingResponse:
    for _ in range(MAX_REDIRECTS + 1):
        reply = await _get_with_retry(services, url)
        if reply.status not in _REDIRECT_STATUSES or "location" not in reply.headers:
            return reply
        url = urljoin(url, reply.headers["location"])
    raise Undeliverable(f"it is redirected more than {MAX_REDIRECTS} times")


async def _get_with_retry(services: Services, url: str) -> OutgoingResponse:
    letter = OutgoingRequest(
        url=url, timeout_seconds=FETCH_SECONDS, max_response_bytes=MAX_IMAGE_BYTES
    )
    try:
        return await services.outgoing.send(letter)
    except Undeliverable:
        return await services.outgoing.send(letter)


def _fetch_error(url: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"Failed to fetch image from {url[:200]}: {why.rstrip('.')}.")
