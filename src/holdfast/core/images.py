"""Detecting the media type of an image from its bytes; a declared media type is not trusted."""

from typing import Final

# The first bytes of the image formats that models accept.
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_WEBP_SIGNATURE: Final = (b"RIFF", b"WEBP")

NOT_AN_IMAGE = "it is no PNG, JPEG, GIF or WebP picture"


def detect_media_type(data: bytes) -> str | None:
    """The media type; None if this is not an image that models accept."""
    if (data[:4], data[8:12]) == _WEBP_SIGNATURE:
        return "image/webp"
    return next((kind for beginning, kind in _SIGNATURES if data.startswith(beginning)), None)
