"""Bodies in which pictures may be given by their address: the picture is put in its place (wire-v1 §3.8)."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends

from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ServicesDep
from holdfast.http.letta_v1.schemas.agents import AgentCreate
from holdfast.http.letta_v1.schemas.approvals import DecideBody
from holdfast.http.letta_v1.schemas.conversations import ConversationSend
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


async def _of_send(body: SendBody, services: ServicesDep) -> SendBody:
    await _fetch_all(services, _send_contents(body))
    return body


async def _of_conversation(body: ConversationSend, services: ServicesDep) -> ConversationSend:
    await _fetch_all(services, _send_contents(body))
    return body


async def _of_decision(body: DecideBody, services: ServicesDep) -> DecideBody:
    await _fetch_all(services, _tool_return_contents(body.approvals or ()))
    return body


async def _of_agent(body: AgentCreate, services: ServicesDep) -> AgentCreate:
    await _fetch_all(services, (item.content for item in body.initial_message_sequence or ()))
    return body


Sent = Annotated[SendBody, Depends(_of_send)]
SentToConversation = Annotated[ConversationSend, Depends(_of_conversation)]
Created = Annotated[AgentCreate, Depends(_of_agent)]
Decided = Annotated[DecideBody, Depends(_of_decision)]


async def _fetch_all(services: Services, contents: Iterator[ContentInput]) -> None:
    linked = [part for content in contents for part in _linked_images(content)]
    if len(linked) > images.MAX_IMAGES:
        raise InvalidArgument(
            f"A request may name at most {images.MAX_IMAGES} pictures by their address, not {len(linked)}."
        )
    places = asyncio.Semaphore(images.MAX_CONCURRENT_FETCHES)
    room = images.MAX_TOTAL_BYTES

    async def fill_in(part: ImageInput, url: str) -> None:
        nonlocal room
        async with places:
            image = await images.fetch(services, url)
        room -= len(image.data) * 3 // 4
        if room < 0:
            raise InvalidArgument(
                f"The pictures of a request may have {images.MAX_TOTAL_BYTES} bytes together."
            )
        part.source = Base64Source(media_type=image.media_type, data=image.data)

    # Not a TaskGroup: its ExceptionGroup would hide from the caller what was wrong with which picture.
    filling = [asyncio.ensure_future(fill_in(*item)) for item in linked]
    try:
        await asyncio.gather(*filling)
    finally:
        for task in filling:
            task.cancel()


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


def _tool_return_contents(
    entries: "list[Entry] | list[ToolReturnEntry] | tuple[()]",
) -> Iterator[ContentInput]:
    for entry in entries:
        if isinstance(entry, ToolReturnEntry):
            yield entry.tool_return


def _linked_images(content: ContentInput) -> Iterator[tuple[ImageInput, str]]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, ImageInput) and isinstance(part.source, UrlSource):
            url = part.source.url
            if url.lower().startswith(("http://", "https://")):
                yield part, url
