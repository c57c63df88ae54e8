"""Extracts the text of a content and stores it in parts. What an attempt that broke off has stored is deleted first."""

import asyncio
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from holdfast.core.files import Content, ContentStatus, TextPart, count_lines, split_into_parts
from holdfast.engine.store_writes import finish
from holdfast.errors import DocumentUnreadable, StaleFile
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# How much of a text is one row, and how many rows one transaction stores: some milliseconds.
PART_CHARS: Final = 64 * 1024
PARTS_AT_ONCE: Final = 8


async def extract_text(services: Services, content: Content) -> Content:
    """Extract the text and store it. Return the content with it, or ``failed`` with the reason."""
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-file-") as folder:
            path = Path(folder, "document")
            await _write_file(services, content.id, path)
            extracted = await services.documents.extract(path, content.format)
    except DocumentUnreadable as error:
        failed = replace(content, status=ContentStatus.FAILED, problem=str(error))
        return await _save(services, content, failed)
    content = await _delete_text(services, content)
    parts = split_into_parts(extracted.text, PART_CHARS)
    while batch := list(islice(parts, PARTS_AT_ONCE)):
        content = await _save(services, content, _with_parts(content, batch), batch)
    # The parts do not know whether the last line ends.
    done = replace(
        content,
        status=ContentStatus.EXTRACTED,
        lines=count_lines(extracted.text),
        problem=extracted.problem,
    )
    return await _save(services, content, done)


async def _write_file(services: Services, content_id: str, path: Path) -> None:
    """Write the bytes to a file, part by part."""
    number = 0
    with path.open("wb") as file:
        while data := await services.store.read(
            partial(_read_bytes, content_id=content_id, number=number)
        ):
            await asyncio.to_thread(file.write, data)
            number += 1


async def _delete_text(services: Services, content: Content) -> Content:
    """Delete what there is of the text, which may be that of another version of the parser."""

    def work(tx: Transaction) -> int:
        _check_unchanged(tx, content)
        return tx.contents.delete_text(content.id, PARTS_AT_ONCE)

    while content.text_parts and await finish(services.store.write(work)):
        pass
    return await _save(services, content, replace(content, text_parts=0, lines=0, characters=0))


async def _save(
    services: Services, before: Content, after: Content, parts: Sequence[TextPart] = ()
) -> Content:
    def work(tx: Transaction) -> Content:
        _check_unchanged(tx, before)
        tx.contents.add_text(after.id, parts)
        tx.contents.save(after)
        return after

    return await finish(services.store.write(work))


def _check_unchanged(tx: Transaction, content: Content) -> None:
    """Another server may have begun to process the same file: a leader that was paused does not know yet that it is none."""
    stored = tx.contents.lock(content.id)
    if (stored.status, stored.text_parts) != (content.status, content.text_parts):
        raise StaleFile(f"The content {content.id} was changed meanwhile.")


def _with_parts(content: Content, parts: Sequence[TextPart]) -> Content:
    return replace(
        content,
        text_parts=content.text_parts + len(parts),
        lines=content.lines + sum(part.text.count("\n") for part in parts),
        characters=content.characters + sum(len(part.text) for part in parts),
    )


def _read_bytes(tx: Transaction, content_id: str, number: int) -> bytes | None:
    return tx.contents.read_bytes(content_id, number)
