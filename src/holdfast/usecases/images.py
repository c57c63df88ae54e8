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
        response = await _follow_redirects(services, url)
    except (Undeliverable, AddressForbidden) as error:
        raise _fetch_error(url, str(error)) from error
    if response.status != _OK:
        raise _fetch_error(url, f"the server answered with status {response.status}")
    media_type = images.detect_media_type(response.body)
    if media_type is None:
        raise _fetch_error(url, images.NOT_AN_IMAGE)
    return Image(media_type, b64encode(response.body).decode("ascii"))


async def _follow_redirects(services: Services, url: str) -> OutgoingResponse:
    for _ in range(MAX_REDIRECTS + 1):
        response = await _get_with_retry(services, url)
        if response.status not in _REDIRECT_STATUSES or "location" not in response.headers:
            return response
        url = urljoin(url, response.headers["location"])
    raise Undeliverable(f"it is redirected more than {MAX_REDIRECTS} times")


async def _get_with_retry(services: Services, url: str) -> OutgoingResponse:
    request = OutgoingRequest(
        url=url, timeout_seconds=FETCH_SECONDS, max_response_bytes=MAX_IMAGE_BYTES
    )
    try:
        return await services.outgoing.send(request)
    except Undeliverable:
        return await services.outgoing.send(request)


def _fetch_error(url: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"Failed to fetch image from {url[:200]}: {reason.rstrip('.')}.")
