"""What a tool of an MCP server has returned, as parts of a message."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.core.images import detect_media_type
from holdfast.core.mcp_tools import EMPTY_RESPONSE
from holdfast.core.messages import Image, Text, VisiblePart
from holdfast.ports.mcp import RemoteResult

# What the providers of models accept.
MAX_IMAGE_BYTES: Final = 10 * 1024 * 1024


def read_result(raw: Mapping[str, Any]) -> RemoteResult:
    """``raw``: the result of tools/call as JSON. All texts become one, joined with one blank; pictures come after it."""
    is_error = raw.get("isError") is True
    if wants_input(raw):
        return fail("The tool asks for input, which this client does not support.")
    texts: list[str] = []
    images: list[VisiblePart] = []
    for block in raw.get("content") or ():
        part = _read_block(block)
        if isinstance(part, Image):
            images.append(part)
        else:
            texts.append(part)
    if not texts and not images:
        texts.append(_render_structured(raw))
    joined = " ".join(texts)
    return RemoteResult((*((Text(joined),) if texts else ()), *images), is_error)


def wants_input(raw: Mapping[str, Any]) -> bool:
    """Whether it is no result yet: the server wants answers of a person or a model first."""
    return raw.get("resultType") == "input_required"


def fail(text: str) -> RemoteResult:
    return RemoteResult((Text(text),), is_error=True)


def _render_structured(raw: Mapping[str, Any]) -> str:
    if raw.get("structuredContent") is None:
        return EMPTY_RESPONSE
    return json.dumps(raw["structuredContent"], ensure_ascii=False, separators=(",", ":"))


def _read_block(block: Mapping[str, Any]) -> str | Image:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind in {"image", "audio"}:
        return _read_binary(kind, block.get("mimeType"), block.get("data"))
    if kind == "resource":
        return _read_resource(block.get("resource") or {})
    if kind == "resource_link":
        return " ".join(_link_parts(block))
    return f"[{kind}]"


def _read_resource(resource: Mapping[str, Any]) -> str | Image:
    if "text" in resource:
        return str(resource["text"])
    return _read_binary("resource", resource.get("mimeType"), resource.get("blob"))


def _read_binary(kind: str, media_type: str | None, data: str | None) -> str | Image:
    """A picture that models accept becomes a part; of everything else only what it is. The declared type is not trusted."""
    encoded = data or ""
    size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
    declared = media_type or "application/octet-stream"
    if size <= MAX_IMAGE_BYTES and (kind == "image" or declared.startswith("image/")):
        try:
            found = detect_media_type(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            found = None
        if found is not None:
            return Image(media_type=found, data=encoded)
    return f"[{kind} {declared}, {size} bytes]"


def _link_parts(block: Mapping[str, Any]) -> Iterator[str]:
    yield str(block.get("uri", ""))
    if block.get("name"):
        yield f"({block['name']})"
