"""Rules of both OpenAI wires for the names of functions, the ids of calls, and models that take no images. Pure."""

import re
from collections.abc import Iterable, Iterator

_PATTERN = "^[a-zA-Z0-9_-]+$"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_CHARS = 64
# Models on these wires that accept text only.
_TEXT_ONLY = re.compile(
    r"gpt-3\.5.*|gpt-4(-0613)?|o3-mini|deepseek-(chat|reasoner)|llama-?3(\.[13])?([-:].*)?|text-only.*"
)
_PICTURES = ("image_url", "input_image")


def name_refusals(where: str, name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield (
            f"Invalid '{where}': string does not match pattern. "
            f"Expected a string that matches the pattern '{_PATTERN}'."
        )
    yield from length_refusals(where, name, _MAX_CHARS)


def length_refusals(where: str, text: str, most: int) -> Iterator[str]:
    if len(text) > most:
        yield (
            f"Invalid '{where}': string too long. Expected a string with maximum length "
            f"{most}, but got a string with length {len(text)} instead."
        )


def picture_refusals(model: object, contents: Iterable[object]) -> Iterator[str]:
    """``contents``: what each message or result holds, text or a list of parts."""
    if not _TEXT_ONLY.fullmatch(str(model)):
        return
    for content in contents:
        for part in content if isinstance(content, list) else ():
            if part.get("type") in _PICTURES:
                yield f"Invalid content type. {part['type']} is only supported by certain models."
