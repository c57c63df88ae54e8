"""What kind of picture some bytes are: by what they are rather than by what somebody says they are."""

from typing import Final

# How the files of the formats that models can see begin.
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_WEBP_SIGNATURE: Final = (b"RIFF", b"WEBP")

NOT_AN_IMAGE = "it is no PNG, JPEG, GIF or WebP picture"


def detect_media_type(data: bytes) -> str | None:
    """Its media type; None if it is no picture that models can see."""
    if (data[:4], data[8:12]) == _WEBP_SIGNATURE:
        return "image/webp"
    return next((kind for beginning, kind in _SIGNATURES if data.startswith(beginning)), None)
