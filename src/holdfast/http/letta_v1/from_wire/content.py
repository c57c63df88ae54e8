"""The content of messages and tool results: text and images (wire-v1 §3.8)."""

import base64
import re
from urllib.parse import unquote_to_bytes

from holdfast.core import images
from holdfast.core.messages import (
    Image,
    Text,
    VisiblePart,
)
from holdfast.errors import InvalidArgument
from holdfast.http.letta_v1.schemas import send as wire

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):")


_DATA_URL = re.compile(r"[^:]*:(?P<media_type>[^;,]*)(?P<parameters>[^,]*),(?P<data>.*)", re.DOTALL)


def parse_content(content: wire.ContentInput) -> tuple[VisiblePart, ...]:
    parts = tuple(part for part in parse_parts(content) if part != Text(""))
    if not parts:
        raise InvalidArgument("Message content is empty or invalid")
    return parts


def parse_parts(content: wire.ContentInput) -> tuple[VisiblePart, ...]:
    """Texts and images. Other parts come from a model's answer, which clients may send back: they are dropped."""
    if isinstance(content, str):
        return (Text(content),)
    found: list[VisiblePart] = []
    for part in content:
        if isinstance(part, wire.TextInput):
            found.append(Text(part.text))
        elif isinstance(part, wire.ImageInput):
            found.append(_image(part.source))
    return tuple(found)


def _image(source: wire.UrlSource | wire.Base64Source | wire.FileSource) -> Image:
    if isinstance(source, wire.UrlSource):
        return _image_from_url(source.url)
    if source.data is None or source.media_type is None:
        raise InvalidArgument("An image needs its 'data' and its 'media_type'.")
    return _image_from_data(source.media_type, source.data, source.detail)


def _image_from_url(url: str) -> Image:
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme == "data":
        return _image_from_data_url(url)
    if scheme in {"http", "https"}:
        raise InvalidArgument(
            "A picture cannot be given by its address here. Send the picture itself: a source "
            "{'type': 'base64', 'media_type': 'image/png', 'data': '<base64>'}, or a data: URL."
        )
    raise InvalidArgument(
        f"Unsupported image URL scheme '{scheme}'. Only 'http', 'https', and 'data' image URLs are "
        "supported. Local file paths (file://) are not allowed."
    )


def _image_from_data_url(url: str) -> Image:
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise InvalidArgument("The data: URL of an image has no comma before its data.")
    data = found["data"]
    if not found["parameters"].lower().endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    return _image_from_data(found["media_type"], data)


def _image_from_data(media_type: str, data: str, detail: str | None = None) -> Image:
    """Check that providers can read the image: their own refusal would not help the caller."""
    if not media_type.lower().startswith("image/"):
        raise InvalidArgument(f"'{media_type}' is not the media type of an image.")
    try:
        decoded = base64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidArgument("The data of an image is not base64.") from None
    if not decoded:
        raise InvalidArgument("The data of an image is empty.")
    # With a wrong media type, the provider would refuse this request and every later one of the thread.
    kind = images.detect_media_type(decoded)
    if kind is None:
        raise InvalidArgument(f"The data of an image cannot be used: {images.NOT_AN_IMAGE}.")
    return Image(kind, data, detail)
