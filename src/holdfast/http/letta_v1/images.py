"""Images that a body gives by their address: fetched, and put in the place of the address (wire-v1 §3.8)."""

import asyncio
from collections.abc import Iterable, Iterator

from holdfast.errors import InvalidArgument
from holdfast.http.letta_v1.schemas.agents import AgentCreate
from holdfast.http.letta_v1.schemas.approvals import DecideBody
from holdfast.http.letta_v1.schemas.send import (
    ApprovalCreate,
    Base64Source,
    ContentInput,
    Entry,
    ImageInput,
    Item,
    MessageCreate,
    SendBody,
    ToolReturnEntry,
    UrlSource,
)
from holdfast.ports.services import Services
from holdfast.usecases import images


async def fetch_linked_images(
    services: Services, body: SendBody | DecideBody | AgentCreate
) -> None:
    """Replace each address in the body by the image that is there. InvalidArgument if that cannot be done."""
    linked = [part for content in _contents(body) for part in _linked_images(content)]
    if linked:
        await _fetch_all(services, linked)


async def _fetch_all(services: Services, linked: list[tuple[ImageInput, str]]) -> None:
    if len(linked) > images.MAX_IMAGES:
        raise InvalidArgument(
            f"A request may name at most {images.MAX_IMAGES} pictures by their address, not {len(linked)}."
        )
    slots = asyncio.Semaphore(images.MAX_CONCURRENT_FETCHES)
    remaining_bytes = images.MAX_TOTAL_BYTES

    async def fetch(part: ImageInput, url: str) -> None:
        nonlocal remaining_bytes
        async with slots:
            image = await images.fetch(services, url)
        remaining_bytes -= len(image.data) * 3 // 4
        if remaining_bytes < 0:
            raise InvalidArgument(
                f"The pictures of a request may have {images.MAX_TOTAL_BYTES} bytes together."
            )
        part.source = Base64Source(media_type=image.media_type, data=image.data)

    # Not a TaskGroup: its ExceptionGroup would hide from the caller which image was refused, and why.
    tasks = [asyncio.ensure_future(fetch(*item)) for item in linked]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _contents(body: SendBody | DecideBody | AgentCreate) -> Iterator[ContentInput]:
    """All content of the body that may have images in it."""
    match body:
        case SendBody():
            return _send_contents(body)
        case DecideBody():
            return _tool_return_contents(body.approvals or ())
        case AgentCreate():
            return (item.content for item in body.initial_message_sequence or ())


def _send_contents(body: SendBody) -> Iterator[ContentInput]:
    if body.input is not None:
        yield body.input
    for item in body.messages or ():
        yield from _item_contents(item)


def _item_contents(item: Item) -> Iterator[ContentInput]:
    if isinstance(item, MessageCreate):
        yield item.content
    elif isinstance(item, ApprovalCreate):
        yield from _tool_return_contents(item.approvals or ())
    else:
        yield from _tool_return_contents(item.tool_returns)


def _tool_return_contents(entries: Iterable[Entry]) -> Iterator[ContentInput]:
    for entry in entries:
        if isinstance(entry, ToolReturnEntry):
            yield entry.tool_return


def _linked_images(content: ContentInput) -> Iterator[tuple[ImageInput, str]]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, ImageInput) and isinstance(part.source, UrlSource):
            url = part.source.url
            if url.lower().startswith(("http://", "https://")):
                yield part, url
